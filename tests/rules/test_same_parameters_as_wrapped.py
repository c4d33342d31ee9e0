from dataclasses import replace

import pytest

from lockstep.rules.same_parameters_as_wrapped import dynamic
from lockstep.trace.events import Optimizer
from tests.rules.gradient_runs import ALL, backward, forward, optimizer, run, step, wrap

UNFROZEN = optimizer(frozen_at_wrap=(False, False, False, True))
ADDED = replace(optimizer(), wrapped=(0, 0, 0, -1))
CAST = optimizer(dtype=("float32", "float32", "float32", "float64"))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (UNFROZEN, "head.bias was unfrozen"),
        (ADDED, "head.bias was added or replaced"),
        (CAST, "head.bias was cast from float32 to float64"),
    ],
)
def test_changed_after_the_wrap(told: Optimizer, words: str) -> None:
    findings = list(dynamic(run(lambda rank: [wrap(), told, forward(), backward(), step(0, rank, (3,))])))
    assert [one.code for one in findings] == ["LS106"]
    assert words in findings[0].seen
    assert str(findings[0].place) == "/home/me/train.py:20"


def test_replaced_and_no_longer_held_by_the_model() -> None:
    told = optimizer(names=("body.weight", "body.bias", "head.weight", ""))
    (found,) = dynamic(run(lambda rank: [wrap(), told, forward(), backward(), step(0, rank, (0, 1), missing=(3,))]))
    assert "no longer those that were wrapped" in found.seen


def test_wrapped_again() -> None:
    assert not list(dynamic(run(lambda rank: [wrap(), UNFROZEN, wrap(), forward(), backward(), step(0)])))


def test_left_alone() -> None:
    frozen = optimizer(trainable=(True, True, True, False), frozen_at_wrap=(False, False, False, True))
    assert not list(dynamic(run(lambda rank: [wrap(), frozen, forward(), backward(), step(0, missing=(3,))])))
    assert not list(dynamic(run(lambda rank: [wrap(), optimizer(), forward(), backward(), step(0, rank, ALL)])))
