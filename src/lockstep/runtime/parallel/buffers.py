"""Rank 0's tensors on every rank, one broadcast for each type, and which buffers need it at each forward."""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

MOST_BYTES = 64 * 2**20


def sync_buffers(model: nn.Module) -> None:
    """Rank 0's buffers on every rank, one broadcast for each type. All ranks call it together.

    Args:
        model: the unwrapped model.
    """
    broadcast_tensors([buffer.detach() for buffer in model.buffers()])


@torch.no_grad()
def broadcast_tensors(tensors: Sequence[Tensor]) -> None:
    """Rank 0's values in the tensors of every rank, several of a type in one broadcast."""
    for alike in _together(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.broadcast(flat, src=0)
        for tensor, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
            tensor.copy_(part.view_as(tensor))


def _together(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Groups of one type, none beyond `MOST_BYTES` but for a single tensor: they are copied once to be sent."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    held: dict[torch.dtype, int] = {}
    for tensor in tensors:
        kind, size = tensor.dtype, _nbytes(tensor)
        if groups.get(kind) and held[kind] + size > MOST_BYTES:
            yield groups.pop(kind)
        held[kind] = (held[kind] if kind in groups else 0) + size
        groups.setdefault(kind, []).append(tensor)
    yield from groups.values()


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def broadcasts(model: nn.Module, choice: str) -> bool:
    """Whether buffers must be equal at each forward: all but running statistics may be read there."""
    if choice != "auto":
        return choice == "on"
    owned = {id(b) for m in model.modules() if isinstance(m, _NormBase) for b in m.buffers(recurse=False)}
    return any(id(buffer) not in owned for buffer in model.buffers())
