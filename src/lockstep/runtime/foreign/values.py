"""Numbers of tensors: whether they are finite, and by how much two differ. A tensor at a time, a piece at a time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PIECE = 2**22  # elements that are widened to float64 at once: 32 MiB


@dataclass(frozen=True)
class Odd:
    """How many elements of a tensor are NaN, and how many infinite."""

    nan: int = 0
    inf: int = 0

    def __bool__(self) -> bool:
        return bool(self.nan or self.inf)

    def __str__(self) -> str:
        parts = [f"{count} {word}" for count, word in ((self.nan, "NaN"), (self.inf, "inf")) if count]
        return ", ".join(parts)


@dataclass(frozen=True)
class Distance:
    """By how much two tensors of one shape differ.

    Attributes:
        elements: how many differ, of `numel`; NaN beside NaN counts as equal.
        largest: the largest absolute difference; inf where a NaN or inf stands on one side only.
        relative: the norm of the difference over the larger norm of the two.
        first: the index of the first element that differs. left, right: its values.
    """

    elements: int
    numel: int
    largest: float
    relative: float
    first: tuple[int, ...]
    left: float | complex
    right: float | complex


def odd_values(tensor: "Tensor") -> Odd:
    """NaN and inf in a tensor."""
    import torch

    if not (tensor.is_floating_point() or tensor.is_complex()):
        return Odd()
    flat = tensor.reshape(-1)
    if flat.element_size() == 1:
        flat = flat.float()
    nan = inf = 0
    for piece in flat.split(PIECE * 4):
        if not bool(torch.isfinite(piece).all()):
            nan += int(torch.isnan(piece).sum())
            inf += int(torch.isinf(piece).sum())
    return Odd(nan, inf)


def same_bits(left: "Tensor", right: "Tensor") -> bool:
    """Whether two tensors of one shape and type have the same bytes; NaN too."""
    import torch

    one, other = (_bytes(tensor.contiguous().reshape(-1)) for tensor in (left, right))
    return torch.equal(one, other)


def _bytes(flat: "Tensor") -> "Tensor":
    """The bytes of numbers in a row; a row of one number may have any stride, and still be contiguous to torch."""
    import torch

    if flat.stride(0) != 1:
        flat = torch.empty(flat.shape, dtype=flat.dtype).copy_(flat)
    return flat.view(torch.uint8)


def distance(left: "Tensor", right: "Tensor") -> Distance | None:
    """By how much two tensors of one shape differ in value; None where they do not (types may differ)."""
    import torch

    wide = torch.complex128 if left.is_complex() or right.is_complex() else torch.float64
    flat = [tensor.reshape(-1) for tensor in (left, right)]
    elements, largest, first = 0, 0.0, -1
    squares = [0.0, 0.0, 0.0]
    for start in range(0, flat[0].numel(), PIECE):
        one, other = (tensor[start : start + PIECE] for tensor in flat)
        if one.dtype == other.dtype and not one.is_floating_point() and not one.is_complex():
            unequal = one != other  # exact, also beyond 2**53
        else:
            unequal = (one.to(wide) != other.to(wide)) & ~(torch.isnan(one.to(wide)) & torch.isnan(other.to(wide)))
        count = int(unequal.sum())
        a, b = one.to(wide), other.to(wide)
        squares[0] += _square(a)
        squares[1] += _square(b)
        if not count:
            continue
        if first < 0:
            first = start + int(unequal.nonzero()[0])
        elements += count
        gap = torch.where(unequal, (a - b).abs(), 0.0)
        gap = torch.where(torch.isnan(gap), torch.inf, gap)
        largest = max(largest, float(gap.max()))
        squares[2] += float((gap**2).sum())
    if not elements:
        return None
    norm = max(squares[0], squares[1]) ** 0.5
    relative = squares[2] ** 0.5 / norm if norm else float("inf")
    index = tuple(int(one) for one in torch.unravel_index(torch.tensor(first), left.shape))
    pair = [tensor[first].to(wide).item() for tensor in flat]
    return Distance(elements, left.numel(), largest, relative, index, *pair)


def _square(values: "Tensor") -> float:
    """The sum of squares of what is finite."""
    import torch

    magnitude = values.abs()
    return float(torch.where(torch.isfinite(magnitude), magnitude, 0.0).square().sum())
