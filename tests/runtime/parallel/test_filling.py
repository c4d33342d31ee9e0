"""Zeros for what has no gradient; whole runs with shards are in test_shards.py."""

import torch
from torch import Tensor, nn

from lockstep.runtime.parallel.filling import Filling


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unit, self.tail = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)}), nn.Linear(2, 2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit["a"](x)


def test_what_a_backward_does_not_reach_is_zero_and_named() -> None:
    model = Halves()
    filling = Filling(model, {"unit.a": model.unit["a"]})
    loss = model(torch.ones(1, 2)).sum()
    filling.start(loss, last=True).backward()
    assert filling.had == {"unit.a.weight", "unit.a.bias"}
    assert model.tail.weight.grad is not None and not model.tail.weight.grad.any()
    assert model.unit["a"].weight.grad is not None and model.unit["a"].weight.grad.any()
    assert model.frozen.weight.grad is None


class Partly(nn.Module):
    """A unit whose second layer takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def test_a_unit_is_filled_before_its_inputs_get_their_gradient() -> None:
    model, seen = nn.Sequential(nn.Linear(2, 2), Partly()), []
    filling = Filling(model, {"1": model[1]})
    inner = model[0](torch.ones(1, 2))
    inner.register_hook(lambda grad: seen.append(model[1].idle.weight.grad is not None))
    loss = model[1](inner).sum()
    filling.start(loss, last=True).backward()
    assert seen == [True]
    assert filling.had == {"0.weight", "0.bias", "1.used.weight", "1.used.bias"}


def test_only_the_last_micro_step_fills() -> None:
    model = Halves()
    filling = Filling(model, {})
    loss = model(torch.ones(1, 2)).sum()
    filling.start(loss, last=False).backward()
    assert not filling.had
    assert model.tail.weight.grad is None
