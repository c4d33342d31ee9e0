"""The numbers of an interval are those of all ranks: sums are added up before they are divided."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import lockstep.runtime.measure as module
from lockstep.runtime.measure import Meter
from lockstep.runtime.step import StepResult


class Clock:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def session(
    others: list[Any] | None = None,
    comm: tuple[float, float] = (0.0, 0.0),
    scale: float = 1.0,
    notes: dict[str, Any] | None = None,
) -> Any:
    """In place of a session; `others` is what further ranks say."""
    return SimpleNamespace(
        world=SimpleNamespace(
            gather=lambda mine: [mine, *(others or [])],
            device=torch.device("cpu"),
            rank=0,
            num_ranks=1 + len(others or []),
        ),
        state=SimpleNamespace(notes=notes or {}),
        replica=SimpleNamespace(communication_s=lambda: comm),
        precision=SimpleNamespace(scaler=SimpleNamespace(get_scale=lambda: scale)),
    )


def result(loss: float = 6.0, count: float = 3.0, **more: Any) -> StepResult:
    values: dict[str, Any] = {
        "sums": {"ce": torch.tensor(loss, dtype=torch.float64)},
        "counts": {"ce": count},
        "weights": {"ce": 1.0},
        "grad_norm": 0.5,
        "updated": True,
        "unused": frozenset(),
        "lr": 0.1,
        "comm_s": 0.0,
    }
    return StepResult(**{**values, **more})


def numbers(summary: dict[str, float | list[float]]) -> dict[str, float]:
    return {name: value for name, value in summary.items() if not isinstance(value, list)}


def test_the_loss_is_the_mean_over_all_elements_of_all_ranks_and_steps(clock: Clock) -> None:
    # The other rank: its sum of losses, two shares, seconds, memory.
    meter = Meter(session([[20.0, 0.0, 0.0, 1.0, 5.0]]))
    for loss, count in ((6.0, 3.0), (2.0, 13.0)):
        clock.now += 1
        meter.stepped(result(loss, count), samples=8)
    found = meter.summary()
    assert found["loss"] == (6 + 2 + 20) / 16
    assert "loss/ce" not in found
    assert found["samples_per_s"] == 16 / 2


def test_several_terms_are_weighted_and_told_one_by_one(clock: Clock) -> None:
    meter = Meter(session())
    clock.now += 1
    sums = {"ce": torch.tensor(6.0), "dice": torch.tensor(4.0)}
    meter.stepped(result(sums=sums, counts={"ce": 3.0, "dice": 8.0}, weights={"ce": 1.0, "dice": 0.5}), 8)
    found = numbers(meter.summary())
    assert (found["loss/ce"], found["loss/dice"], found["loss"]) == (2.0, 0.5, 2.25)


def test_a_term_without_elements_is_zero(clock: Clock) -> None:
    meter = Meter(session())
    clock.now += 1
    meter.stepped(result(0.0, 0.0), 8)
    assert meter.summary()["loss"] == 0.0


def test_a_term_that_some_steps_lack_counts_where_it_is(clock: Clock) -> None:
    meter = Meter(session())
    both = {"ce": torch.tensor(6.0), "aux": torch.tensor(9.0)}
    clock.now += 1
    meter.stepped(result(sums=both, counts={"ce": 3.0, "aux": 3.0}, weights={"ce": 1.0, "aux": 1.0}), 8)
    meter.stepped(result(), 8)
    found = numbers(meter.summary())
    assert (found["loss/aux"], found["loss/ce"]) == (3.0, 2.0)


def test_what_is_not_finite_shows(clock: Clock) -> None:
    meter = Meter(session())
    clock.now += 1
    meter.stepped(result(math.nan, 3.0, grad_norm=math.inf, updated=False), 8)
    found = numbers(meter.summary())
    assert math.isnan(found["loss"]) and found["grad_norm"] == math.inf


def test_an_evaluation_between_steps_does_not_slow_them(clock: Clock) -> None:
    meter = Meter(session())
    clock.now += 1
    meter.stepped(result(), 8)
    clock.now += 1000
    meter.restart()
    clock.now += 1
    meter.stepped(result(), 8)
    assert meter.summary()["samples_per_s"] == 8.0


def test_shares_are_those_of_the_slowest_rank(clock: Clock) -> None:
    meter = Meter(session([[0.0, 0.75, 0.1, 1.5, 7.0]], comm=(0.5, 0.3)))
    for _ in range(2):
        meter.waited(0.25)
        clock.now += 1
        meter.stepped(result(comm_s=0.1), 8)
    found = meter.summary()
    assert found["data_share"] == 0.75
    assert found["comm_share"] == pytest.approx(0.5 - 0.3 + 0.1)
    memory = found["memory_mib"]
    assert isinstance(memory, list) and memory[1] == 7.0 and memory[0] > 10


def test_communication_is_at_most_the_whole_step_and_never_negative(clock: Clock) -> None:
    for comm, share in (((9.0, 0.0), 1.0), ((0.1, 0.4), 0.0)):
        meter = Meter(session(comm=comm))
        clock.now += 1
        meter.stepped(result(), 8)
        assert meter.summary()["comm_share"] == share


def test_an_interval_begins_anew(clock: Clock) -> None:
    meter = Meter(session(scale=1024.0))
    for loss, norm in ((600.0, 9.0), (3.0, 0.25)):
        clock.now += 2
        meter.stepped(result(loss, grad_norm=norm, lr=norm / 10), 8)
        meter.waited(0.5)
        found = numbers(meter.summary())
    assert (found["loss"], found["grad_norm"], found["lr"], found["scale"]) == (1.0, 0.25, 0.025, 1024.0)
    assert (found["samples_per_s"], found["data_share"]) == (4.0, 0.25)


def test_an_interval_goes_on_where_a_checkpoint_was_saved_in_it(clock: Clock) -> None:
    whole, first = Meter(session()), Meter(session())
    assert first.interval() is None
    for meter in (whole, first):
        meter.stepped(result(loss=6.1, count=3.0), 4)
        meter.stepped(result(loss=0.7, count=2.0), 4)
    later = Meter(session(notes={"interval": first.interval()}))
    assert later.pending
    for meter in (whole, later):
        meter.stepped(result(loss=2.9, count=4.0), 4)
    values = [meter.summary() for meter in (whole, later)]
    assert values[0]["loss"] == values[1]["loss"] == (6.1 + 0.7 + 2.9) / 9
    assert not later.pending and later.interval() is None


def test_an_interval_without_a_further_step_is_told_all_the_same(clock: Clock) -> None:
    first = Meter(session())
    first.stepped(result(loss=6.0, count=3.0), 4)
    later = Meter(session(notes={"interval": first.interval()}))
    values = later.summary()
    assert (values["loss"], values["lr"], values["grad_norm"], values["samples_per_s"]) == (2.0, 0.1, 0.5, 0.0)


def test_an_interval_of_more_ranks_is_summed_once(clock: Clock) -> None:
    one = {"sums": {"ce": 1.0}, "counts": {"ce": 6.0}, "weights": {"ce": 1.0}, "grad_norm": 0.5, "lr": 0.1}
    later = Meter(session(notes={"interval": [one, one, one]}))
    assert later.summary()["loss"] == 0.5
