"""Blocks whose forward is compiled, and run once more in backward instead of keeping what it computed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lockstep.core.errors import RunError, UserError, explain

Compile = Literal["off", "static", "dynamic"]


def compile_blocks(model: nn.Module, blocks: Mapping[str, nn.Module], choice: Compile) -> None:
    """Compile each block's forward, or the model's where there are no blocks. Names stay as they are.

    Args:
        model: the unwrapped model.
        blocks: by name.
        choice: `static` compiles for each shape, `dynamic` once for all; what is compiled does not depend on the
            shapes seen before, so that a resumed run computes what the unbroken one did.
    """
    if choice == "off":
        return
    import torch._dynamo  # for a second; only those who compile pay it

    # By default a second shape makes torch compile for all shapes, with other kernels from then on.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
    for module in blocks.values() or [model]:
        module.forward = _Compiled(torch.compile(module.forward, dynamic=choice == "dynamic"))


RECOMPILE_LIMIT = 64
"""Shapes and modes that a block may be compiled for before torch falls back to running it uncompiled."""


class _Compiled:
    """A compiled forward whose compiler's failures are told in words."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.inner = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self.inner(*args, **kwargs)
        except TorchDynamoException as error:
            text = " ".join([line.strip() for line in str(error).splitlines() if line.strip()][:2]).rstrip(".")
            must = "torch.compile compiles the blocks; on a CPU it needs a C++ compiler"
            raise RunError(
                explain(f"it failed: {text}", must, "run.compile", "mend that, or run.compile=off")
            ) from error


def recompute_blocks(model: nn.Module, blocks: Mapping[str, nn.Module]) -> None:
    """Let each block keep only its inputs for backward.

    Raises:
        UserError: where there are no blocks.
    """
    if not blocks:
        seen = f"memory.activation_checkpointing=true, and {type(model).__name__} has no blocks"
        must = "blocks to keep only the inputs of"
        raise UserError(explain(seen, must, "recipe.model()", "name some: parallel.blocks=[PATTERN]"))
    for block in blocks.values():
        block.forward = _Recomputed(block, block.forward)


class _Recomputed:
    """A forward under activation checkpointing."""

    def __init__(self, block: nn.Module, forward: Callable[..., Any]) -> None:
        self.block, self.inner = block, forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.inner(*args, **kwargs)
        contexts = partial(_contexts, self.block)
        return checkpoint(self.inner, *args, use_reentrant=False, context_fn=contexts, **kwargs)


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _second_time(block)


@contextmanager
def _second_time(block: nn.Module) -> Iterator[None]:
    """Running statistics are those of one forward a step: the second one changes copies that are dropped."""
    kept = [(module, dict(module._buffers)) for module in block.modules() if module._buffers]
    for module, buffers in kept:
        module._buffers.update({name: None if b is None else b.clone() for name, b in buffers.items()})
    try:
        yield
    finally:
        for module, buffers in kept:
            module._buffers.update(buffers)
