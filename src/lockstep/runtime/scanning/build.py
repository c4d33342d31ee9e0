"""How a sample is built: which leaves it has, of which type and shape."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Shape = tuple[int, ...] | None
_TYPES: dict[torch.dtype, str] = {}


class Build(NamedTuple):
    """The build of one sample; equal builds are alike in all but their values.

    Attributes:
        leaves: (path, type) of every leaf, such as `("image", "float32 tensor")`.
        shapes: of every leaf; None where it has none.
    """

    leaves: tuple[tuple[str, str], ...]
    shapes: tuple[Shape, ...]


Leaf = tuple[str, Any]


def leaves_of(sample: Any, path: str = "") -> Iterator[Leaf]:
    """Every leaf of a nested sample with its path: `image`, `boxes[2]`, `` for a sample that is one leaf.

    A list of plain numbers is one leaf. The order of a mapping's keys is of no matter.

    Raises:
        ValueError: where it holds itself. RecursionError: where it is nested hundreds of levels deep.
    """
    return _leaves_of(sample, path, set())


def _leaves_of(sample: Any, path: str, above: set[int]) -> Iterator[Leaf]:
    parts = None if isinstance(sample, _LEAVES) else _parts(sample)
    if parts is None:
        yield path, sample
        return
    if id(sample) in above:
        raise ValueError(f"{path or 'the sample'} holds itself")
    above.add(id(sample))
    for key, value in parts:
        yield from _leaves_of(value, f"{path}.{key}" if path and key[0] != "[" else f"{path}{key}", above)
    above.remove(id(sample))


_LEAVES = (Tensor, np.ndarray, str, bytes, int, float, type(None))


def _parts(sample: Any) -> list[Leaf] | None:
    """What a container holds, None for what is no container."""
    if isinstance(sample, Mapping):
        return sorted(((str(key) or "''", value) for key, value in sample.items()), key=lambda part: part[0])
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return list(zip(sample._fields, sample, strict=True))
    if isinstance(sample, list | tuple):
        return None if _plain(sample) else [(f"[{position}]", value) for position, value in enumerate(sample)]
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        return [(field.name, getattr(sample, field.name)) for field in dataclasses.fields(sample)]
    return None


def _plain(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list is one row of numbers or texts; a short tuple is a structure, as (image, label) is."""
    kinds = set(map(type, values))
    return kinds <= {int, float, bool} if isinstance(values, list) else len(values) > 8 and kinds <= {int, float}


def build_of(leaves: list[Leaf]) -> Build:
    """The build of a sample from its leaves."""
    described = [(path, *_describe(value)) for path, value in leaves]
    return Build(tuple((path, kind) for path, kind, _ in described), tuple(shape for _, _, shape in described))


def _describe(value: Any) -> tuple[str, Shape]:
    if isinstance(value, Tensor):
        kind = _TYPES.get(value.dtype)
        if kind is None:
            kind = _TYPES[value.dtype] = f"{str(value.dtype).removeprefix('torch.')} tensor"
        if value.is_nested:  # its sizes are those of its parts, or symbols
            return f"nested {kind}", None
        return kind, tuple(value.shape)
    if isinstance(value, np.ndarray):
        # The length of the longest text is no property of a sample.
        return f"{value.dtype if value.dtype.kind not in 'US' else 'text'} array", value.shape
    if isinstance(value, np.generic):
        return f"{value.dtype} number", None
    if isinstance(value, list | tuple):
        kinds = sorted({type(one).__name__ for one in value})
        return f"{type(value).__name__} of {' and '.join(kinds) or 'numbers'}", (len(value),)
    if hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
        return f"{value.mode} picture", (value.size[1], value.size[0])
    return type(value).__name__, None


def batch_kind(batch: Any) -> Any:
    """What a batch is but for its sizes: names, types and number of axes. Lists are as their elements are."""
    if isinstance(batch, Mapping):
        return tuple(sorted((str(key), batch_kind(value)) for key, value in batch.items()))
    if isinstance(batch, list):
        return "list", frozenset(batch_kind(value) for value in batch)
    if isinstance(batch, tuple):
        return "tuple", tuple(batch_kind(value) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        fields = dataclasses.fields(batch)
        return type(batch).__name__, tuple(batch_kind(getattr(batch, field.name)) for field in fields)
    kind, shape = _describe(batch)
    return kind, None if shape is None else len(shape)


def num_bytes(leaves: list[Leaf]) -> int:
    """Bytes that a sample takes in memory: of its arrays and texts."""
    total = 0
    for _, value in leaves:
        if isinstance(value, Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, np.ndarray | np.generic):
            total += value.nbytes
        elif isinstance(value, str | bytes):
            total += len(value)
        elif isinstance(value, list | tuple):
            total += 8 * len(value)
        elif isinstance(value, int | float):
            total += 8
        elif hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
            total += value.size[0] * value.size[1] * len(value.getbands())
    return total


def shape_text(shape: Shape) -> str:
    """`3 x 40 x 48`, `a single value`."""
    if shape is None:
        return "without a shape"
    return " x ".join(map(str, shape)) if shape else "a single value"
