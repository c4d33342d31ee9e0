"""The config of a run: one frozen value, read from YAML and `key=value` overrides. Never imports torch."""

from typing import TYPE_CHECKING, Any

from lockstep.runtime.config.changes import changes
from lockstep.runtime.config.machine import MemoryConfig, ParallelConfig, PrecisionConfig, RunConfig
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
from lockstep.runtime.config.value import Config

if TYPE_CHECKING:
    from lockstep.runtime.config.load import dump_config, load_config

__all__ = [
    "BatchConfig",
    "BestConfig",
    "CheckpointConfig",
    "Config",
    "DataConfig",
    "EmaConfig",
    "EvaluateConfig",
    "LogConfig",
    "MemoryConfig",
    "OptimConfig",
    "ParallelConfig",
    "PrecisionConfig",
    "RunConfig",
    "ScheduleConfig",
    "StopConfig",
    "changes",
    "dump_config",
    "load_config",
]


def __getattr__(name: str) -> Any:
    """YAML reading comes with OmegaConf, which is imported only when a config is read or written."""
    if name in ("dump_config", "load_config"):
        from lockstep.runtime.config import load

        return getattr(load, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
