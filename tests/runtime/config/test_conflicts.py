from typing import Any

import pytest

from lockstep.runtime.config.conflicts import CHECKS, conflicts
from lockstep.runtime.config.schema import Fields

IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"recipe": "mine.py"}, "recipe"),
    ({"recipe": "mine.py:"}, "recipe"),
    ({"recipe": "mine.py:not a name"}, "recipe"),
    ({"recipe": "mine:Net"}, "recipe"),
    ({"batch": {"global_batch": 8, "per_rank": 4}}, "batch.global_batch"),
    ({"batch": {"accumulation": 2, "micro_batch": 4}}, "batch.accumulation"),
    ({"batch": {"per_rank": 4, "micro_batch": 4}}, "batch.micro_batch"),
    ({"batch": {"global_batch": 4, "accumulation": 5}}, "batch.accumulation"),
    ({"batch": {"accumulation": 17}}, "batch.accumulation"),
    ({"batch": {"global_targets": 64, "global_batch": 8}}, "batch.global_targets"),
    ({"batch": {"global_targets": 64, "micro_batch": 8}}, "batch.global_targets"),
    ({"batch": {"micro_targets": 64}}, "batch.micro_targets"),
    ({"data": {"bucket": 8, "shuffle": False}}, "data.bucket"),
    ({"optim": {"lr_scaling": "linear"}}, "optim.lr_scaling"),
    ({"optim": {"lr_scaling": "sqrt"}, "batch": {"per_rank": 4}}, "optim.lr_scaling"),
    ({"optim": {"nesterov": True}}, "optim.nesterov"),
    ({"optim": {"nesterov": True, "name": "sgd", "momentum": 0}}, "optim.nesterov"),
    ({"schedule": {"warmup_steps": 11, "total_steps": 10}}, "schedule.warmup_steps"),
    ({"parallel": {"static_graph": True, "find_unused": "on"}}, "parallel.static_graph"),
    ({"stop": {"patience": 3}}, "stop.patience"),
    ({"best": {"metric": "val/miou"}, "evaluate": {"every_epochs": None}}, "best.metric"),
]
POSSIBLE: list[dict[str, Any]] = [
    {},
    {"recipe": "mine.py:Net"},
    {"recipe": "a folder/mine.py:Net"},
    {"recipe": "/abs/mine.py:Net2"},
    {"batch": {"per_rank": 4, "accumulation": 40}},
    {"batch": {"global_batch": 4, "accumulation": 4}},
    {"batch": {"global_batch": 16, "micro_batch": 64}},
    {"batch": {"global_targets": 64, "micro_targets": 32}, "data": {"bucket": 8}},
    {"batch": {"per_rank": 4, "reference": 16}, "optim": {"lr_scaling": "linear"}},
    {"optim": {"nesterov": True, "name": "sgd"}},
    {"schedule": {"warmup_steps": 10, "total_steps": 10}},
    {"schedule": {"warmup_steps": 1000}, "stop": {"max_steps": 3}},
    {"parallel": {"static_graph": True, "find_unused": "auto"}},
    {"parallel": {"static_graph": True, "find_unused": "off"}},
    {"checkpoint": {"keep_best": True}},
    {"stop": {"patience": 3}, "best": {"metric": "val/miou"}},
    {"best": {"metric": "val/miou"}, "evaluate": {"every_epochs": None, "every_steps": 5}},
    {"evaluate": {"every_epochs": None}},
    {"precision": "fp16", "run": {"device": "cpu"}},
]


@pytest.mark.parametrize(("values", "subject"), IMPOSSIBLE)
def test_impossible(values: dict[str, Any], subject: str) -> None:
    [problem] = conflicts(Fields.model_validate(values))
    assert problem.paths[0] == subject
    assert all(path in problem.seen for path in problem.paths)
    assert problem.must


@pytest.mark.parametrize("values", POSSIBLE)
def test_possible(values: dict[str, Any]) -> None:
    assert conflicts(Fields.model_validate(values)) == []


def test_every_check_is_tried() -> None:
    tried = {check.__name__ for check in CHECKS for values, _ in IMPOSSIBLE if check(Fields.model_validate(values))}
    assert tried == {check.__name__ for check in CHECKS}
