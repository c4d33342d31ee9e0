"""The training runtime, also as a library: take World, the data order, the global loss, the metrics and State alone.

Names are imported on first use, so that reading a config needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.runtime.batch import BatchPlan
    from lockstep.runtime.config import CheckpointConfig, Config, load_config
    from lockstep.runtime.data.loader import Reading, TrainLoader, eval_loader
    from lockstep.runtime.data.sampler import EvalSampler, TrainSampler
    from lockstep.runtime.evaluation import MergedMetric, evaluate
    from lockstep.runtime.loss import CountSum, Term, masked_term, total_loss
    from lockstep.runtime.parallel.batch_norm import synchronise
    from lockstep.runtime.parallel.buffers import sync_buffers
    from lockstep.runtime.recipe import Batching, Labels, Recipe
    from lockstep.runtime.state.position import Position
    from lockstep.runtime.state.saver import Saver, State, find_checkpoint
    from lockstep.runtime.stopping import stop_signals
    from lockstep.runtime.streams import seed_rank_step, shared_stream
    from lockstep.runtime.trackers import About, Tracker
    from lockstep.runtime.training import Summary, fit
    from lockstep.runtime.world import World

_HOMES = {
    "batch": ("BatchPlan",),
    "config": ("CheckpointConfig", "Config", "load_config"),
    "data.loader": ("Reading", "TrainLoader", "eval_loader"),
    "data.sampler": ("EvalSampler", "TrainSampler"),
    "evaluation": ("MergedMetric", "evaluate"),
    "training": ("Summary", "fit"),
    "loss": ("CountSum", "Term", "masked_term", "total_loss"),
    "parallel.batch_norm": ("synchronise",),
    "parallel.buffers": ("sync_buffers",),
    "recipe": ("Batching", "Labels", "Recipe"),
    "state.position": ("Position",),
    "state.saver": ("Saver", "State", "find_checkpoint"),
    "stopping": ("stop_signals",),
    "streams": ("seed_rank_step", "shared_stream"),
    "trackers": ("About", "Tracker"),
    "world": ("World",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "About",
    "BatchPlan",
    "Batching",
    "CheckpointConfig",
    "Config",
    "CountSum",
    "EvalSampler",
    "Labels",
    "MergedMetric",
    "Position",
    "Reading",
    "Recipe",
    "Saver",
    "State",
    "Summary",
    "Term",
    "Tracker",
    "TrainLoader",
    "TrainSampler",
    "World",
    "eval_loader",
    "evaluate",
    "find_checkpoint",
    "fit",
    "load_config",
    "masked_term",
    "seed_rank_step",
    "shared_stream",
    "stop_signals",
    "sync_buffers",
    "synchronise",
    "total_loss",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
