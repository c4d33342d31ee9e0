"""The config's choice."""

from typing import Any

import pytest
from torch import nn

from lockstep.core.errors import UserError
from lockstep.runtime.parallel.regions import _Recomputed
from lockstep.runtime.parallel.wrap import wrap
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment, config_of


def chosen() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with World.enter(threads=1) as world:
        for name, more in {
            "default": [],
            "fsdp": ["parallel.strategy=fsdp"],
            "recomputed": ["memory.activation_checkpointing=true"],
        }.items():
            task = Segment(depth=2)
            model = task.model()
            wrapped = wrap(model, task, world, config_of(*more))
            recomputed = [path for path, module in model.named_modules() if isinstance(module.forward, _Recomputed)]
            found[name] = type(wrapped).__name__, wrapped.paired, wrapped.carries, recomputed
            wrapped.close()
    return found


def test_what_the_config_says() -> None:
    (found,) = run_ranks(chosen, 1)
    assert found == {
        "default": ("Replica", False, True, []),
        "fsdp": ("Shards", True, False, []),
        "recomputed": ("Replica", False, True, ["blocks.0", "blocks.1"]),
    }


def test_a_model_without_blocks_has_nothing_to_recompute() -> None:
    config = config_of("memory.activation_checkpointing=true")
    with pytest.raises(UserError, match="has no blocks"):
        wrap(nn.Linear(2, 2), Segment(), None, config)  # type: ignore[arg-type]  # it does not come to the ranks
