"""The last steps with the loss over all ranks."""

import math

import torch

from lockstep.runtime.step import StepResult
from lockstep.runtime.triage.history import KEPT, History
from lockstep.runtime.triage.words import Past
from lockstep.runtime.world import World
from tests.ranks import run_ranks


def result(value: float) -> StepResult:
    sums = {"a": torch.tensor(value, dtype=torch.float64), "b": torch.tensor(1.0)}
    return StepResult(sums, {"a": 4.0, "b": 0.0}, {"a": 2.0, "b": 1.0}, 1.0, True, frozenset(), 0.1, 0.0)


def told() -> list[Past]:
    with World.enter(threads=1) as world:
        history = History()
        for step in range(KEPT + 3):
            history.add(step, 2.0**step, result(step + world.rank if step < KEPT + 2 else math.inf))
        assert history.scale == 2.0 ** (KEPT + 2)
        return history.told(world)


def test_the_loss_is_that_of_all_ranks() -> None:
    first, second = run_ranks(told, 2)
    assert first == second
    assert [past.step for past in first] == list(range(3, KEPT + 3))
    assert first[0] == Past(3, 2.0 * (3 + 4) / 4, 8.0)
    assert first[-1].loss == math.inf
