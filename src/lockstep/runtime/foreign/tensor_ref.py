"""A tensor that is still in its file: its shape is known, its numbers are read when they are asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from lockstep.runtime.foreign.dtypes import BYTES
from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.window import DamagedFileError, Window

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_SIZE, MOST_DIMENSIONS = 2**63 - 1, 64  # of a tensor in torch
LARGEST_REPEAT = 2**28  # elements that an expanded tensor (one number, many times) may have


def are_sizes(*values: Any) -> bool:
    """Whether values from a file are whole numbers that torch takes as sizes."""
    return all(type(value) is int and 0 <= value <= LARGEST_SIZE for value in values)


def sizes_text(sizes: Iterable[Any]) -> str:
    """Sizes as a file tells them, whatever they are."""
    return f"({', '.join(map(text_of, sizes))})"


class Storage:
    """A block of numbers that tensors are views of.

    Attributes:
        key: its name in the file. dtype: of its elements. numel: how many.
        window: where they lie; known once the file is read.
    """

    __slots__ = ("dtype", "key", "numel", "window")

    def __init__(self, key: str, dtype: str, numel: int) -> None:
        self.key, self.dtype, self.numel = key, dtype, numel
        self.window: Window | None = None

    def __setstate__(self, state: Any) -> None:
        raise DamagedFileError("the file sets a state on a storage")


@dataclass(frozen=True)
class TensorRef:
    """A strided view of a storage.

    Attributes:
        storage: where its numbers are. offset: of its first element, in elements of `dtype`.
        shape: its sizes. stride: steps in elements, one a dimension.
        dtype: of its elements.
    """

    storage: Storage = field(repr=False)
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def __setstate__(self, state: Any) -> None:
        """Attributes that a subclass of Tensor has besides: not needed."""

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for tensors that are one and the same in memory: tied weights."""
        window = self._window
        source = id(window.source) if isinstance(window.source, bytes) else window.source
        return (source, window.start, self.offset, self.shape, self.stride, self.dtype)

    @property
    def _window(self) -> Window:
        if self.storage.window is None:
            raise DamagedFileError(f"storage {self.storage.key} is missing")
        return self.storage.window

    @property
    def span(self) -> int:
        """Elements between the first and the last one, both included."""
        if not prod(self.shape):
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))

    def checked(self) -> "TensorRef":
        """Itself.

        Raises:
            DamagedFileError: where it reaches beyond its storage, or is no tensor at all.
        """
        if not isinstance(self.dtype, str) or self.dtype not in BYTES:
            raise DamagedFileError(f"a tensor of type {text_of(self.dtype)}")
        if len(self.shape) != len(self.stride) or len(self.shape) > MOST_DIMENSIONS:
            raise DamagedFileError(f"a tensor of {len(self.shape)} dimensions with {len(self.stride)} strides")
        if not are_sizes(self.offset, *self.shape, prod(max(1, size) for size in self.shape) * BYTES[self.dtype]):
            raise DamagedFileError(f"a tensor of shape {sizes_text(self.shape)}")
        if not are_sizes(*self.stride):
            raise DamagedFileError(f"a tensor of strides {sizes_text(self.stride)}")
        room = self.storage.numel * BYTES[self.storage.dtype] // BYTES[self.dtype]
        if self.span and self.offset + self.span > room:
            raise DamagedFileError(f"a tensor of shape {self.shape} in a storage of {room} elements")
        if prod(self.shape) > max(room, LARGEST_REPEAT):
            raise DamagedFileError(f"a tensor of shape {self.shape} repeats a storage of {room} elements")
        return self

    def load(self) -> "Tensor":
        """The tensor, in memory of its own."""
        import torch

        dtype = getattr(torch, self.dtype)
        if not self.span:
            return torch.empty(self.shape, dtype=dtype)
        size = BYTES[self.dtype]
        data = self._window.part(self.offset * size, self.span * size).read()
        return torch.frombuffer(data, dtype=dtype).as_strided(self.shape, self.stride)
