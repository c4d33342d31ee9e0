"""What is told of optimizers: what they hold, and what a step used."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.trace.events import Forward, Optimizer, Scaler, Step
from lockstep.trace.sink import read_tensor
from tests.trace.recording import bare, record_one


def _pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.Linear(2, 1), nn.Linear(1, 1)


def _two() -> list[list[float]]:
    """A generator and a judge, as in a GAN."""
    maker, judge = _pair()
    first = torch.optim.SGD([{"params": maker.weight, "lr": 0.5}, {"params": maker.bias}], lr=0.1)
    second = torch.optim.Adam(judge.parameters(), lr=torch.tensor(0.01))
    for _ in range(2):
        second.zero_grad()
        judge(maker(torch.ones(1, 2)).detach()).sum().backward()
        second.step()
        first.zero_grad()
        judge.requires_grad_(False)
        judge(maker(torch.ones(1, 2))).sum().backward()
        judge.requires_grad_(True)
        first.step()
    return [one.tolist() for model in (maker, judge) for one in model.parameters()]


def test_each_optimizer_has_its_steps(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _two)
    assert [seen.result] == bare(_two)
    told = seen.of(Optimizer)
    assert [(one.optimizer, one.kind, one.keys) for one in told] == [
        (1, "Adam", ("0/0", "0/1")),
        (0, "SGD", ("0/0", "1/0")),
    ]
    assert [one.names for one in told] == [("1:weight", "1:bias"), ("0:weight", "0:bias")]
    assert [one.numel for one in told] == [(1, 1), (2, 1)]
    steps = seen.of(Step)
    assert [(one.optimizer, one.number, one.step) for one in steps] == [(1, 0, 0), (0, 0, 1), (1, 1, 2), (0, 1, 3)]
    assert steps[1].lr == (0.5, 0.1) and steps[0].lr == (pytest.approx(0.01),)
    assert steps[0].before.keys() == steps[0].after.keys() and not steps[2].before, "before only at the first step"
    assert steps[0].before != steps[0].after and steps[0].missing == ()


def _full() -> list[list[float]]:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    frozen = nn.Parameter(torch.tensor(5.0))
    optimizer = torch.optim.SGD([weight, frozen], lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        (weight * torch.tensor([3.0, 4.0])).sum().backward()
        optimizer.step()
    return [weight.tolist()]


def test_at_full_detail_values_are_kept(tmp_path: Path) -> None:
    first, second = record_one(tmp_path, _full, full=True).of(Step)
    assert first.norm == 5.0 and first.missing == ("0/1",)
    places = first.start_tensors["0/0"], first.grad_tensors["0/0"], first.param_tensors["0/0"]
    values = [read_tensor(tmp_path / "trace", 0, place) for place in places]
    assert [value.tolist() for value in values if value is not None] == [[1, 2], [3, 4], [-0.5, 0]]
    assert second.before == first.after and not second.start_tensors


class _Strange(torch.optim.Optimizer):
    """Finds its own rate, and does nothing."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": None})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None


def _strange() -> list[Any]:
    torch.manual_seed(0)
    table = nn.Embedding(5, 2, sparse=True)
    kinds = [
        nn.Parameter(torch.ones(2, dtype=torch.complex64)),
        nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
        nn.Parameter(torch.tensor(2.0)),
        nn.Parameter(torch.zeros(0, 3)),
    ]
    empty = torch.optim.SGD([{"params": []}, {"params": kinds}, {"params": []}], lr=0.1)
    sparse = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for _ in range(2):
        table(torch.tensor([1, 1, 3])).sum().backward()
        sum(abs(one).sum().float() for one in kinds).backward()  # type: ignore[union-attr]
        for one in (empty, sparse, _Strange([nn.Parameter(torch.ones(1))])):
            one.step()
            one.zero_grad()
    return [torch.view_as_real(kinds[0]).tolist(), table.weight.tolist(), [one.tolist() for one in kinds[1:]]]


@pytest.mark.parametrize("full", [False, True])
def test_strange_parameters_and_gradients(tmp_path: Path, full: bool) -> None:
    seen = record_one(tmp_path, _strange, full=full)
    assert [seen.result] == bare(_strange)
    assert [one.kind for one in seen.of(Optimizer)] == ["SGD", "SparseAdam", "_Strange", "_Strange"]
    first, sparse, own, *_ = seen.of(Step)
    assert list(first.grads) == ["1/0", "1/1", "1/2", "1/3"] and list(sparse.grads) == ["0/0"]
    assert len(own.lr) == 1 and own.lr[0] != own.lr[0], "no number"
    if full:
        assert first.norm == pytest.approx(6**0.5) and sparse.norm == pytest.approx((2 * 4 + 2) ** 0.5)


def _closure() -> list[float]:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.LBFGS([weight], max_iter=2)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    optimizer.step(closure=loss)
    return weight.tolist()


def test_gradients_that_a_closure_makes_within_the_step(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _closure)
    assert [seen.result] == bare(_closure)
    assert [(one.missing, list(one.grads)) for one in seen.of(Step)] == [((), ["0/0"])] * 2


def _scaled() -> list[float]:
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for factor in (0.5, float("inf"), 0.25, 0.25):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return weight.tolist()


def test_a_step_that_the_scaler_skips_is_none(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _scaled, full=True)
    assert [seen.result] == bare(_scaled) == [[0.0]]
    assert [one.norm for one in seen.of(Step)] == [0.5, 0.25, 0.25], "unscaled"
    assert [(one.scale, one.skipped) for one in seen.of(Scaler)] == [(8, False), (4, True), (4, False), (8, False)]


def _changes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = optimizer.state_dict()
    for number in range(4):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if number == 1:
            model[0].requires_grad_(False)
            state["param_groups"][0]["lr"] = 0.75
            optimizer.load_state_dict(state)
        if number == 2:
            model[0] = nn.Linear(2, 2)  # the optimizer goes on with the old one


def test_what_changes_later_is_told_again(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _changes)
    told = seen.of(Optimizer)
    assert [one.step for one in told] == [0, 2]
    assert [one.trainable for one in told] == [(True,) * 4, (False, False, True, True)]
    assert [one.lr for one in seen.of(Step)] == [(0.1,), (0.1,), (0.75,), (0.75,)]
    assert seen.of(Step)[2].missing == ("0/0", "0/1")
    assert len(seen.of(Forward)) == 4


def _often() -> list[int]:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(1)
    for _ in range(100):
        optimizer.step()
    return weight.tolist()


def test_after_many_steps_digests_are_taken_now_and_then(tmp_path: Path) -> None:
    steps = record_one(tmp_path, _often).of(Step)
    assert [one.number for one in steps if one.grads] == [*range(64), 64, 80, 96]
    assert len(steps) == 100 and all(one.lr == (0.1,) for one in steps)


class _Outer(torch.optim.Optimizer):
    """An optimizer around another, as look-ahead and sharpness-aware ones are."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__(inner.param_groups, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()


def _within() -> list[float]:
    weight = nn.Parameter(torch.ones(1))
    outer = _Outer(torch.optim.SGD([weight], lr=0.5))
    weight.grad = torch.ones(1)
    outer.step()
    return weight.tolist()


def test_an_optimizer_around_another(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _within)
    assert seen.result == [0.5]
    assert [one.optimizer for one in seen.of(Step)] == [0, 1]


def _errors() -> str:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def fails() -> float:
        raise ArithmeticError("in the closure")

    try:
        optimizer.step(fails)
    except ArithmeticError as error:
        met = str(error)
    weight.grad = torch.ones(1)
    optimizer.step()
    return met


def test_a_step_that_raises_is_no_step(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _errors)
    assert seen.result == "in the closure"
    assert [(one.number, one.missing) for one in seen.of(Step)] == [(0, ())]
