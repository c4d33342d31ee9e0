"""What stands beside the tensors is told in words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lockstep.runtime.foreign.facts import facts_of, optimizer_of, plain_value
from tests.runtime.foreign.samples import net
from tests.runtime.foreign.test_tree import root_of

KINDS: list[tuple[Callable[..., torch.optim.Optimizer], str]] = [
    (lambda p: torch.optim.SGD(p, lr=0.1), "SGD, or one before its first step, lr 0.1"),
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "SGD with momentum, lr 0.1"),
    (lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True), "Adam or AdamW with amsgrad, lr 0.001, 1 group, step 2"),
    (lambda p: torch.optim.AdamW(p, lr=1e-3), "Adam or AdamW, lr 0.001, 1 group, step 2"),
    (lambda p: torch.optim.RMSprop(p), "RMSprop"),
    (lambda p: torch.optim.Adagrad(p), "Adagrad"),
    (lambda p: torch.optim.Adamax(p), "Adamax"),
    (lambda p: torch.optim.NAdam(p), "NAdam"),
    (lambda p: torch.optim.Adadelta(p), "Adadelta"),
]


@pytest.mark.parametrize(("make", "told"), KINDS)
def test_the_optimizer_is_told_by_what_it_keeps(make: Callable[..., torch.optim.Optimizer], told: str) -> None:
    model = net()
    optimizer = make(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    assert optimizer_of(root_of(optimizer.state_dict())).startswith(told)


def test_numbers_also_of_numpy_and_random_states() -> None:
    content: dict[str, Any] = {
        "epoch": 3,
        "best": np.float64(0.25),
        "step": np.int64(7),
        "name": "x" * 100,
        "cuda_rng_state": torch.zeros(2),
    }
    facts = facts_of(root_of(content))
    assert (facts["epoch"], facts["best"], facts["step"]) == (3, 0.25, 7)
    assert facts["name"].endswith("...") and facts["random states"] == "cuda_rng_state"
    assert plain_value([1]) is None


def test_odd_values_are_told_and_never_more() -> None:
    state = {"state": {0: {"step": torch.tensor(1 + 2j), "exp_avg": torch.ones(1)}}, "param_groups": [{"lr": 10**5000}]}
    assert optimizer_of(root_of(state)) == "Lion, or another with one average, 1 group"
    state["state"][0]["step"] = 10**5000  # type: ignore[index]
    assert optimizer_of(root_of(state)).endswith("1 group")
    assert facts_of({"epoch": 10**5000, 10**5000: 3}) == {
        "epoch": "<a number of 16610 bits>",
        "<a number of 16610 bits>": 3,
    }
    assert facts_of({"optimizer": {"state": None, "param_groups": None}}) == {}


def test_what_an_optimizer_keeps_in_shards_tells_its_kind() -> None:
    state = {"state": {0: {"step": torch.tensor(20.0)}}, "param_groups": [{"lr": 0.01}]}
    told = facts_of(root_of({"optimizer": state}), {"exp_avg", "exp_avg_sq"})["optimizer"]
    assert told == "Adam or AdamW, lr 0.01, 1 group, step 20"
