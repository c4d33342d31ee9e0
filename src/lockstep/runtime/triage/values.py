"""Tensors inside nested values, and whether their numbers are finite."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from lockstep.runtime.parallel.local import local


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every floating tensor in lists, tuples, mappings and dataclasses, with the path that leads to it."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from tensors_in(item, f"{name}[{i}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from tensors_in(getattr(value, one.name), f"{name}.{one.name}" if name else one.name)


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
