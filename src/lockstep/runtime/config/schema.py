"""All fields of the config, which says all of a run but the number of ranks."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from lockstep.runtime.config.machine import MemoryConfig, ParallelConfig, PrecisionConfig, RunConfig
from lockstep.runtime.config.section import Section, Text
from lockstep.runtime.config.sections import (
    BatchConfig,
    BestConfig,
    CheckpointConfig,
    DataConfig,
    EmaConfig,
    EvaluateConfig,
    LogConfig,
    OptimConfig,
    ScheduleConfig,
    StopConfig,
)

DEFAULT_RECIPE = "digit_scenes"


def _plain(value: Any) -> Any:
    """A copy of what YAML can hold; anything else would not survive config.yaml."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise ValueError(f"an option holds a {type(value).__name__}")


class Fields(Section):
    """All fields of the config, each checked by itself. What must hold between them is checked elsewhere."""

    recipe: Text = Field(
        default=DEFAULT_RECIPE,
        description="What to train: the name of a built-in recipe, or `path.py:Class` for one of your own. "
        "A relative path is looked up in the current folder, then in the folder of CONFIG.",
    )
    options: Annotated[dict[str, Any], AfterValidator(_plain)] = Field(
        default_factory=dict, description="Keyword arguments of the recipe, by name; values are plain YAML data."
    )
    seed: int = Field(
        default=0, ge=0, le=2**63 - 1, description="Start of all random streams: initial weights, order, augmentation."
    )
    init_from: Text | None = Field(
        default=None,
        description="Weights to start from: a file (`.safetensors`, `.pt`), a run, or what `lockstep ckpt show` reads "
        "besides (Lightning, Accelerate, DCP); optimizer and position start fresh. null: the recipe's own.",
    )
    run: RunConfig = Field(default_factory=RunConfig)
    precision: PrecisionConfig = Field(default_factory=PrecisionConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    batch: BatchConfig = Field(default_factory=BatchConfig)
    optim: OptimConfig = Field(default_factory=OptimConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    ema: EmaConfig = Field(default_factory=EmaConfig)
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    best: BestConfig = Field(default_factory=BestConfig)
    stop: StopConfig = Field(default_factory=StopConfig)
    log: LogConfig = Field(default_factory=LogConfig)
