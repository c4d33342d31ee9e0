"""From a model to the wrapped task that the config asks for."""

from torch import nn

from lockstep.runtime.config import Config
from lockstep.runtime.parallel.blocks import blocks_of
from lockstep.runtime.parallel.regions import compile_blocks, recompute_blocks
from lockstep.runtime.parallel.replica import Replica
from lockstep.runtime.parallel.shards import Shards
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World


def wrap(model: nn.Module, recipe: Recipe, world: World, config: Config) -> Wrapped:
    """Compile, recompute and share the model as the config says.

    Args:
        model: with its initial weights; on its device, or with fsdp on the host.
        recipe: gives the loss.
        world: the ranks.
        config: the resolved config.

    Raises:
        UserError: where the config asks for what the model has not.
    """
    blocks = blocks_of(model, config.parallel.blocks)
    compile_blocks(model, blocks, config.run.compile)
    if config.memory.activation_checkpointing:
        recompute_blocks(model, blocks)
    if config.parallel.strategy == "fsdp":
        return Shards(model, recipe, world, blocks, config.parallel)
    return Replica(model, recipe, world, config.parallel, config.log.every_steps)
