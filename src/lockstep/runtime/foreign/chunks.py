"""A tensor that lies in blocks, each where one rank has put it: put together when it is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from lockstep.runtime.foreign.contents import Entry
from lockstep.runtime.foreign.tensor_ref import MOST_DIMENSIONS, are_sizes, sizes_text
from lockstep.runtime.foreign.window import DamagedFileError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """A block of a tensor: where it begins in it, its sizes, and how its numbers are read."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    load: "Callable[[], Tensor]" = field(repr=False, compare=False)


def put_together(name: str, shape: tuple[int, ...], dtype: str, chunks: Sequence[Chunk]) -> Entry:
    """The whole tensor, whose numbers stay where they are.

    Raises:
        DamagedFileError: where the blocks do not fill it.
    """
    if (
        len(shape) > MOST_DIMENSIONS
        or not are_sizes(*shape)
        or not are_sizes(prod(max(1, size) for size in shape) * 16)
    ):
        raise DamagedFileError(f"{name} has the shape {sizes_text(shape)}")
    if not all(are_sizes(*chunk.offsets, *chunk.sizes) for chunk in chunks):
        raise DamagedFileError(f"a shard of {name} lies nowhere in it: one is missing")
    inside = all(_inside(chunk, shape) for chunk in chunks)
    held = sum(prod(chunk.sizes) for chunk in chunks)
    if not inside or held != prod(shape):
        raise DamagedFileError(f"the shards of {name} hold {held} of its {prod(shape)} elements: one is missing")
    return Entry(shape, dtype, lambda: _load(name, shape, dtype, chunks))


def _inside(chunk: Chunk, shape: tuple[int, ...]) -> bool:
    if not len(chunk.offsets) == len(chunk.sizes) == len(shape):
        return False
    axes = zip(chunk.offsets, chunk.sizes, shape, strict=True)
    return all(at >= 0 and size >= 0 and at + size <= end for at, size, end in axes)


def _load(name: str, shape: tuple[int, ...], dtype: str, chunks: Sequence[Chunk]) -> "Tensor":
    import torch

    whole = torch.empty(shape, dtype=getattr(torch, dtype))
    for chunk in chunks:
        part = chunk.load()
        if tuple(part.shape) != chunk.sizes:
            raise DamagedFileError(f"a shard of {name} has shape {tuple(part.shape)}, not {chunk.sizes}")
        target = whole
        for axis, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            target = target.narrow(axis, offset, size)
        target.copy_(part)
    return whole
