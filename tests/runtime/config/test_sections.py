from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.runtime.config import BatchConfig, LogConfig, OptimConfig, RunConfig, StopConfig


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (OptimConfig, "lr", "3e-4"),
        (OptimConfig, "lr", True),
        (OptimConfig, "lr", 0),
        (OptimConfig, "lr", float("inf")),
        (OptimConfig, "lr", float("nan")),
        (OptimConfig, "betas", [0.9]),
        (OptimConfig, "betas", [0.9, 1.0]),
        (OptimConfig, "betas", [0.9, "0.95"]),
        (OptimConfig, "momentum", 1.0),
        (OptimConfig, "fused", 1),
        (OptimConfig, "fused", "true"),
        (OptimConfig, "lr_cap", 0.5),
        (BatchConfig, "global_batch", True),
        (BatchConfig, "global_batch", 4.0),
        (BatchConfig, "global_batch", "4"),
        (BatchConfig, "global_batch", 0),
        (BatchConfig, "global_batch", False),
        (RunConfig, "threads", True),
        (RunConfig, "threads", 0),
        (RunConfig, "dir", ""),
        (RunConfig, "dir", 3),
        (LogConfig, "progress", 1),
        (StopConfig, "epochs", None),
    ],
)
def test_refuses(section: Any, key: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        section(**{key: value})


@pytest.mark.parametrize(
    ("section", "key", "value", "kept"),
    [
        (OptimConfig, "lr", 1, 1.0),
        (OptimConfig, "betas", [0, 0.5], (0.0, 0.5)),
        (OptimConfig, "clip_norm", None, None),
        (RunConfig, "threads", 3, 3),
        (LogConfig, "progress", True, "on"),
        (LogConfig, "progress", False, "off"),
        (LogConfig, "progress", "auto", "auto"),
    ],
)
def test_accepts(section: Any, key: str, value: Any, kept: Any) -> None:
    found = getattr(section(**{key: value}), key)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, (16, None)),
        ({"global_batch": 8}, (8, None)),
        ({"per_rank": 4}, (None, 4)),
        ({"global_batch": None}, (16, None)),
        ({"global_batch": None, "per_rank": None}, (16, None)),
        ({"global_batch": None, "per_rank": 4}, (None, 4)),
        ({"global_batch": 8, "per_rank": 4}, (8, 4)),  # refused by Config
    ],
)
def test_one_of_the_two_sizes_is_set(given: dict[str, int | None], sizes: tuple[int | None, int | None]) -> None:
    batch = BatchConfig.model_validate(given)
    assert (batch.global_batch, batch.per_rank) == sizes
