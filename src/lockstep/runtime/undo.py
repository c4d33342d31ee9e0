"""Buffers as they were, for a forward that must leave no trace: a step that is left out, a rehearsal."""

import torch
from torch import Tensor, nn

_Place = tuple[dict[str, Tensor | None], str, Tensor]


class BufferUndo:
    """Copies of a model's buffers, and where they belong.

    A mean that nan has gone into never forgets it, and would spoil every evaluation from then on. A forward may write
    into a buffer, or put another tensor in its place; both are put back.

    Args:
        model: the unwrapped model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._places: list[_Place] = []
        self._kept: list[Tensor] = []

    @torch.no_grad()
    def keep(self) -> None:
        """Take the values of now."""
        places = [
            (module._buffers, name, buffer)
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        live = [buffer for _, _, buffer in places]
        same = len(live) == len(self._kept) and all(
            buffer is old and buffer.shape == kept.shape
            for buffer, (_, _, old), kept in zip(live, self._places, self._kept, strict=True)
        )
        self._places = places
        if not same:
            self._kept = [buffer.detach().clone() for buffer in live]
        elif live:
            torch._foreach_copy_(self._kept, live)

    @torch.no_grad()
    def undo(self) -> None:
        """Put back the tensors and the values of the last `keep`."""
        for (owner, name, buffer), kept in zip(self._places, self._kept, strict=True):
            if buffer.shape == kept.shape:
                owner[name] = buffer.copy_(kept)
            else:
                owner[name] = kept.clone()
