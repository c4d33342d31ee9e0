"""LS407: a loss over gathered tensors without a gradient."""

import pytest

from lockstep.rules import gathered_gradient
from lockstep.trace.events import Backward, Collective, Event, Step
from tests.rules.by_hand import HERE, trace


def gather(grad: bool = True, shape: tuple[int, ...] = (4, 8), op: str = "all_gather") -> Event:
    return Collective(number=0, op=op, grad=grad, shape=shape, ranks=(0, 1), at=f"{HERE}:60")


def learn(loss: float | None) -> list[Event]:
    return [Backward(loss=loss, flags={"0": True}), Step(optimizer=0, number=0)]


def test_before_a_loss_of_each_rank() -> None:
    (finding,) = gathered_gradient.dynamic(trace([gather(), *learn(0.4)] * 2, [gather(), *learn(0.5)] * 2))
    assert "all_gather of a tensor of 4x8 that requires a gradient" in finding.seen
    assert [one.rank for one in finding.witnesses] == [0, 1]


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([[gather(grad=False), *learn(loss)] for loss in (0.4, 0.5)], id="detached, or in a Function"),
        pytest.param([[gather(shape=()), *learn(loss)] for loss in (0.4, 0.5)], id="the loss itself, to show it"),
        pytest.param([[*learn(loss), gather()] for loss in (0.4, 0.5)], id="after the backward"),
        pytest.param([[gather(), *learn(0.4)]] * 2, id="one loss on all ranks: the own part is put back"),
        pytest.param([[gather(op="all_reduce"), *learn(loss)] for loss in (0.4, 0.5)], id="no gather"),
    ],
)
def test_left_alone(runs: list[list[Event]]) -> None:
    assert not list(gathered_gradient.dynamic(trace(*runs)))
