"""An optimizer's state by number, by name and in parts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.runtime.state.optimizer import (
    described,
    load_optimizer,
    match_layout,
    names_of,
    parameters_of,
    shard_name,
    split_state,
)


def stepped(model: nn.Module, kind: Any = torch.optim.AdamW, **options: Any) -> torch.optim.Optimizer:
    optimizer = kind(model.parameters(), lr=0.1, **options)
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    optimizer.step()
    return optimizer


def test_names_in_the_order_of_the_optimizer() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    stray = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [model[1].bias]}, {"params": [stray, model[0].weight]}], lr=0.1)
    assert names_of(model, optimizer) == ["1.bias", "1", "0.weight"]
    assert parameters_of(optimizer)[2] is model[0].weight


def test_what_is_whole_stays_in_the_state_dict() -> None:
    model = nn.Linear(2, 2)
    state, shards = split_state(stepped(model), ["weight", "bias"], None, {})
    assert not shards
    assert described(shards) == {}
    assert set(state["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}
    assert shard_name("a.weight", "exp_avg") == "optimizer.a.weight.exp_avg"


def test_moments_come_back_and_the_rate_is_the_new_one() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    saved = stepped(model).state_dict()
    other = torch.optim.AdamW(model.parameters(), lr=0.5)
    load_optimizer(other, saved)
    assert other.param_groups[0]["lr"] == 0.5
    assert torch.equal(other.state[model.weight]["exp_avg"], saved["state"][0]["exp_avg"])


def test_another_kind_is_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="saved with another optimizer than SGD"):
        load_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), stepped(model).state_dict())


def test_shards_of_a_parameter_that_is_not_there() -> None:
    model = nn.Linear(2, 2)
    optimizer = stepped(model)
    saved = {"state": {}, "param_groups": optimizer.state_dict()["param_groups"]}
    with pytest.raises(KeyError, match="parameters that this model has not"):
        load_optimizer(optimizer, saved, {"optimizer.old.weight.exp_avg": "float32"}, ["weight", "bias"], Path())


def test_a_state_is_laid_out_as_its_parameter() -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = stepped(model)
    state = optimizer.state[model.weight]
    state["exp_avg"] = state["exp_avg"].contiguous()
    wanted = state["exp_avg"].clone()
    match_layout(optimizer)
    assert state["exp_avg"].stride() == model.weight.stride()
    assert torch.equal(state["exp_avg"], wanted)
