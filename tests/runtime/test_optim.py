"""Optimizers with the options of the config, schedules against values computed by hand."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.core.errors import UserError
from lockstep.runtime.config import OptimConfig, ScheduleConfig
from lockstep.runtime.optim import build_optimizer, build_schedule

WARMUP, TOTAL, AFTER = 3, 9, 14


def rates(steps: int = AFTER, total: int = TOTAL, factor: float = 1.0, lr: float = 1.0, **config: Any) -> list[float]:
    """The learning rate of each step."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=lr)
    schedule = build_schedule(optimizer, ScheduleConfig(**config), total, factor)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


RISE = [0.25, 0.5, 0.75]
BY_HAND: dict[str, tuple[dict[str, Any], list[float]]] = {
    "constant": ({}, [1.0] * 11),
    "cosine": (
        {"final_factor": 0.25},
        [0.25 + 0.75 * (1 + math.cos(math.pi * k / 6)) / 2 for k in range(6)] + [0.25] * 5,
    ),
    "linear": ({"final_factor": 0.25}, [1.0, 0.875, 0.75, 0.625, 0.5, 0.375] + [0.25] * 5),
    "poly": (
        {"final_factor": 0.25, "power": 2.0},
        [0.25 + 0.75 * ((6 - k) / 6) ** 2 for k in range(6)] + [0.25] * 5,
    ),
    "step": (
        {"step_size": 2, "gamma": 0.5},
        [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.03125],
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_shape_with_warm_up_is_that_computed_by_hand(name: str) -> None:
    options, expected = BY_HAND[name]
    assert rates(name=name, warmup_steps=WARMUP, **options) == pytest.approx(RISE + expected, rel=1e-12)


@pytest.mark.parametrize("name", BY_HAND)
def test_shape_without_warm_up_starts_at_the_peak(name: str) -> None:
    options, expected = BY_HAND[name]
    assert rates(total=6, steps=11, name=name, **options) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["cosine", "linear", "poly"])
def test_the_end_stays_the_end(name: str) -> None:
    assert rates(steps=40, name=name)[TOTAL:] == pytest.approx([0.0] * (40 - TOTAL), abs=1e-12)
    assert rates(steps=40, name=name, final_factor=0.1, lr=0.5)[-1] == pytest.approx(0.05)


@pytest.mark.parametrize(("factor", "steps"), [(1.0, 4), (2.0, 8), (1.3, 5), (0.5, 4)])
def test_a_scaled_up_rate_has_a_longer_warm_up_and_a_smaller_one_no_shorter(factor: float, steps: int) -> None:
    found = rates(steps=30, total=100, factor=factor, name="constant", warmup_steps=4)
    assert found[:steps] == pytest.approx([(k + 1) / (steps + 1) for k in range(steps)])
    assert found[steps:] == [1.0] * (30 - steps)


def test_a_warm_up_longer_than_the_run_only_rises() -> None:
    found = rates(steps=5, total=5, name="cosine", warmup_steps=50)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(5 / 51)


def test_a_run_of_one_step() -> None:
    assert rates(steps=2, total=1, name="cosine")[0] == 1.0


@pytest.mark.parametrize("name", BY_HAND)
def test_a_restored_schedule_goes_on_where_it_was(name: str) -> None:
    options, _ = BY_HAND[name]
    config = ScheduleConfig(name=name, warmup_steps=WARMUP, **options)  # type: ignore[arg-type]
    whole = rates(name=name, warmup_steps=WARMUP, **options)
    for cut in (1, WARMUP - 1, WARMUP, WARMUP + 2, TOTAL, TOTAL + 2):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        schedule = build_schedule(optimizer, config, TOTAL, 1.0)
        for _ in range(cut):
            optimizer.step()
            schedule.step()
        again = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        resumed = build_schedule(again, config, TOTAL, 1.0)
        again.load_state_dict(optimizer.state_dict())
        resumed.load_state_dict(schedule.state_dict())
        found = []
        for _ in range(AFTER - cut):
            found.append(again.param_groups[0]["lr"])
            again.step()
            resumed.step()
        assert found == whole[cut:]  # bit by bit


def test_the_state_of_a_schedule_is_plain() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    state = build_schedule(optimizer, ScheduleConfig(warmup_steps=2), 9, 1.0).state_dict()

    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(plain(item) for item in value.values())
        if isinstance(value, list | tuple):
            return all(plain(item) for item in value)
        return value is None or isinstance(value, int | float | str)

    assert plain(state), state


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("name", "kind"), [("adamw", "AdamW"), ("adam", "Adam"), ("sgd", "SGD")])
def test_options_reach_the_optimizer(name: Any, kind: str, fused: bool) -> None:
    common = {"weight_decay": 0.25, "betas": (0.8, 0.9), "momentum": 0.5, "nesterov": name == "sgd"}
    config = OptimConfig(name=name, fused=fused, **common)  # type: ignore[arg-type]
    made = build_optimizer(nn.Linear(2, 2), config, 0.125)
    assert type(made).__name__ == kind
    group = made.param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (0.125, 0.25)
    assert bool(group["fused"]) is fused
    assert group["foreach"] is None
    if name == "sgd":
        assert (group["momentum"], group["nesterov"]) == (0.5, True)
    else:
        assert tuple(group["betas"]) == (0.8, 0.9)


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_fused_has_the_numbers_of_the_plain_optimizer(name: Any) -> None:
    ends = []
    for fused in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(3, 3).double()
        optimizer = build_optimizer(model, OptimConfig(name=name, fused=fused), 0.1)
        for step in range(5):
            optimizer.zero_grad()
            (model(torch.full((2, 3), step + 1.0, dtype=torch.float64)) ** 2).sum().backward()
            optimizer.step()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(ends[0], ends[1], rtol=1e-12, atol=0)


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    params = build_optimizer(model, OptimConfig(), 0.1).param_groups[0]["params"]
    assert [id(p) for p in params] == [id(p) for p in model[1].parameters()]


def test_tied_weights_are_updated_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    assert len(build_optimizer(model, OptimConfig(), 0.1).param_groups[0]["params"]) == 1


@pytest.mark.parametrize("model", [nn.Identity(), nn.Linear(2, 2).requires_grad_(False)])
def test_nothing_to_train_is_the_users_mistake(model: nn.Module) -> None:
    with pytest.raises(UserError, match=r"(?s)has no trainable parameter.*requires_grad=True.*recipe.model\(\)"):
        build_optimizer(model, OptimConfig(), 0.1)


def test_complex_parameters_are_not_fused() -> None:
    model = nn.Module()
    model.w = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    assert not build_optimizer(model, OptimConfig(), 0.1).param_groups[0]["fused"]
