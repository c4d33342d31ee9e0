"""Buffers as they were before a step, for a step that is left out: its forward has moved running statistics."""

import torch
from torch import Tensor, nn


class BufferUndo:
    """Copies of a model's floating and whole-number buffers.

    A mean that nan has gone into never forgets it, and would spoil every evaluation from then on.

    Args:
        model: the unwrapped model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._live: list[Tensor] = []
        self._kept: list[Tensor] = []

    @torch.no_grad()
    def keep(self) -> None:
        """Take the values of now."""
        live = list(self._model.buffers())
        if len(live) != len(self._live) or any(a is not b for a, b in zip(live, self._live, strict=True)):
            self._live, self._kept = live, [buffer.detach().clone() for buffer in live]
        elif live:
            torch._foreach_copy_(self._kept, live)

    @torch.no_grad()
    def undo(self) -> None:
        """Put back the values of the last `keep`."""
        if self._live:
            torch._foreach_copy_(self._live, self._kept)
