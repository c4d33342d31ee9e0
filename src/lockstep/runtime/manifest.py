"""What a run was made of: versions, device, batch, seed, launch, digests; never the data."""

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import lockstep
from lockstep.core.digest import file_digest, value_digest
from lockstep.runtime.batch import BatchPlan
from lockstep.runtime.config import Config
from lockstep.runtime.precision import Precision
from lockstep.runtime.world import World


def versions() -> dict[str, str]:
    """The versions that a bit-exact repetition needs."""
    names = "numpy", "safetensors", "torchmetrics"
    return {
        "lockstep": lockstep.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **{name: metadata.version(name) for name in names},
    }


def describe(
    config: Config, world: World, plan: BatchPlan, precision: Precision, launch: str, line: str
) -> dict[str, Any]:
    """The manifest of a run at its start.

    Args:
        config: the resolved config.
        world: the ranks.
        plan: batch and learning rate.
        precision: the format in use.
        launch: `lockstep train`, `torchrun` or `library`.
        line: the contract line.
    """
    values = config.model_dump(mode="json")
    name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else platform.processor() or "cpu"
    return {
        "contract": line,
        "num_ranks": world.num_ranks,
        "num_nodes": world.place.num_nodes,
        "threads_per_rank": torch.get_num_threads(),
        "device": {"type": world.device.type, "name": name},
        "precision": precision.name,
        "global_batch": plan.global_batch,
        "counted": "targets" if plan.targets else "samples",
        "accumulation": plan.accumulation,
        "seed": config.seed,
        "launch": launch,
        "argv": sys.argv[1:],
        "versions": versions(),
        "config_digest": value_digest({k: v for k, v in values.items() if k != "run"}),
        "config": values,
    }


def source_digest(recipe: object) -> dict[str, str]:
    """File and SHA-256 of the module that defines a recipe."""
    file = getattr(sys.modules.get(type(recipe).__module__), "__file__", None)
    return {"file": str(file), "sha256": file_digest(Path(file))} if file else {}
