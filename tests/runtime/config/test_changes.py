from typing import Any

import pytest

from lockstep.runtime.config import Config, changes


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({}, {}, []),
        ({}, {"optim": {"lr": 3e-4}}, ["optim.lr: 0.001 -> 0.0003"]),
        (
            {"seed": 1, "run": {"dir": "a"}},
            {"stop": {"max_steps": 3}},
            ["seed: 1 -> 0", 'run.dir: "a" -> null', "stop.max_steps: null -> 3"],
        ),
        ({}, {"options": {"a": 1, "b": {"c": [1, 2]}}}, ["options.a: not set -> 1", "options.b.c: not set -> [1, 2]"]),
        ({"options": {"a": 1}}, {}, ["options.a: 1 -> not set"]),
        ({"options": {"a": 1}}, {"options": {"a": 2, "b": 3}}, ["options.a: 1 -> 2", "options.b: not set -> 3"]),
        (
            {},
            {"batch": {"per_rank": 4}},
            ["batch.global_batch: 16 -> null", "batch.per_rank: null -> 4"],
        ),
    ],
)
def test_changes(old: dict[str, Any], new: dict[str, Any], lines: list[str]) -> None:
    assert changes(Config.model_validate(old), Config.model_validate(new)) == lines
