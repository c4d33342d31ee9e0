"""Tensors inside nested values, and whether their numbers are finite."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.runtime.data.transfer import tensors_in
from lockstep.runtime.parallel.local import local


def floats_in(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every floating tensor in a nested value, with the path that leads to it."""
    return ((path, tensor) for path, tensor in tensors_in(value) if tensor.is_floating_point())


def numbers_in(value: Any) -> Iterator[float]:
    """Every plain number in lists, tuples and mappings."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from numbers_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers_in(item)


@torch.no_grad()
def fault(tensor: Tensor) -> str:
    """`nan`, `inf` or `-inf`, whichever a tensor holds, the worst first; empty where all numbers are finite."""
    values = local(tensor)
    if not _readable(values) or bool(torch.isfinite(values).all()):
        return ""
    if bool(torch.isnan(values).any()):
        return "nan"
    return "inf" if bool(torch.isposinf(values).any()) else "-inf"


@torch.no_grad()
def largest(tensors: Iterator[Tensor]) -> float:
    """The largest absolute finite number in them; 0 where there is none."""
    most = 0.0
    for tensor in tensors:
        values = local(tensor)
        if _readable(values):
            most = max(most, float(torch.nan_to_num(values.float(), 0.0, 0.0, 0.0).abs().max()))
    return most if math.isfinite(most) else math.inf


def _readable(values: Tensor) -> bool:
    """Whether there are numbers to look at: not in a sparse tensor, nor where sharding has freed the memory."""
    return values.layout == torch.strided and values.numel() > 0 and values.untyped_storage().nbytes() > 0
