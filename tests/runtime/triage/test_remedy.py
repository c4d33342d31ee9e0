"""Modules are tried where the fault is, then where its numbers come from; forward faults come before backward ones."""

import math
from typing import Any

import pytest

from lockstep.runtime.triage.finding import Finding, Outcome
from lockstep.runtime.triage.remedy import _suspects, everywhere
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.triage.nets import Net


def at(module: str | None, *feeds: str, direction: Any = "forward") -> Outcome:
    loss = math.nan if direction == "forward" else 0.0
    return Outcome(Finding(direction, module, "", "", "nan", "float16", 1.0, "", "", feeds), loss, False)


@pytest.mark.parametrize(
    ("outcome", "tried", "next_ones"),
    [
        (Outcome(), [], []),
        (at("block.inner", "norm"), [], ["block.inner"]),
        (at("block.inner", "norm"), ["block.inner"], []),
        (at("block", "block.inner"), [], ["block.inner"]),
        (at("block", "block.inner"), ["block.inner"], ["block"]),
        (at("", "block"), [], ["block"]),
        (at("", "block"), ["block"], []),
        (at(None, "head"), [], ["head"]),
        (at(None), [], []),
    ],
)
def test_what_is_tried_next(outcome: Outcome, tried: list[str], next_ones: list[str]) -> None:
    assert _suspects(Net("healthy"), outcome, tried) == next_ones


def gathered(directions: list[str]) -> list[bool]:
    with World.enter(threads=1) as world:
        outcomes = everywhere(at("head", direction=directions[world.rank]), world)
        return [outcome.finding is not None for outcome in outcomes]


def test_gradients_that_suffer_from_the_forward_of_another_rank_are_left_out() -> None:
    assert run_ranks(gathered, 2, ["backward", "forward"]) == [[False, True]] * 2
    assert run_ranks(gathered, 2, ["backward", "backward"]) == [[True, True]] * 2
