"""A tensor that is still in its file: its shape is known, its numbers are read when they are asked for."""

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from lockstep.runtime.foreign.dtypes import BYTES
from lockstep.runtime.foreign.window import DamagedFileError, Window

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_REPEAT = 2**28  # elements that an expanded tensor (one number, many times) may have


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
        window = self.storage.window
        assert window is not None
        source = id(window.source) if isinstance(window.source, bytes) else window.source
        return (source, window.start, self.offset, self.shape, self.stride, self.dtype)

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
        numbers = (self.offset, *self.shape, *self.stride)
        whole = all(isinstance(one, int) and one >= 0 for one in numbers) and len(self.shape) == len(self.stride)
        if not whole or self.dtype not in BYTES:
            raise DamagedFileError(f"a tensor of shape {self.shape}, strides {self.stride} and type {self.dtype}")
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
        assert self.storage.window is not None
        size = BYTES[self.dtype]
        data = self.storage.window.part(self.offset * size, self.span * size).read()
        return torch.frombuffer(data, dtype=dtype).as_strided(self.shape, self.stride)
