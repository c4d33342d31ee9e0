"""What is in a batch: its size, a digest a sample, and how to cut or merge it."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.trace.digests import to_numpy

_SAMPLE = 64


def leaves(batch: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in a batch that is no container: `0`, `label`, `0.mask`."""
    if isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(batch, tuple | list) and not _words(batch):
        for number, value in enumerate(batch):
            yield from leaves(value, f"{name}.{number}" if name else str(number))
    else:
        yield name, batch


def _words(batch: Any) -> bool:
    """A list of plain values, one a sample, as texts are collated."""
    return bool(batch) and all(isinstance(value, str | int | float) for value in batch)


def size_of(batch: Any) -> int | None:
    """Samples: the first dimension of its first tensor."""
    for _, value in leaves(batch):
        if isinstance(value, Tensor) and value.dim() > 0:
            return _rows(value)
    return None


def _rows(value: Tensor) -> int:
    return int(value.size(0))  # a nested tensor has no other sizes


def row_digests(batch: Any, size: int | None) -> dict[str, tuple[str, ...]]:
    """{path: a digest a sample} for what has one row a sample and values; of at most 64 elements a row."""
    found = {}
    for name, value in leaves(batch):
        if isinstance(value, Tensor):
            if not size or value.is_meta or value.dim() == 0 or _rows(value) != size:
                continue
            rows = _dense(value).reshape(size, -1)
            data = to_numpy(rows[:, :: max(-(-rows.shape[1] // _SAMPLE), 1)])
            found[name] = tuple(f"{zlib.crc32(row.tobytes()):08x}" for row in data)
        elif isinstance(value, list | tuple) and len(value) == size:
            found[name] = tuple(f"{zlib.crc32(repr(one).encode()):08x}" for one in value)
    return found


def row_shapes(batch: Any, size: int | None) -> dict[str, tuple[int, ...]]:
    """{path: shape of a row} of the tensors that have one row a sample."""
    return {
        name: tuple(value.shape[1:])
        for name, value in leaves(batch)
        if isinstance(value, Tensor) and not value.is_nested and value.dim() > 0 and value.shape[0] == size
    }


def _dense(value: Tensor) -> Tensor:
    plain = value.layout is torch.strided and not value.is_nested
    return value.detach() if plain else torch.from_numpy(to_numpy(value))


def mapped(batch: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same batch with every tensor changed; containers keep their types."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return _like(batch, {key: mapped(value, change) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(mapped(value, change) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(mapped(value, change) for value in batch)
    return batch


def _like(original: Any, values: dict[Any, Any]) -> Any:
    if type(original) is dict:
        return values
    try:
        changed = original.copy()
        changed.update(values)
    except (AttributeError, TypeError):
        return values
    return changed


def cut(batch: Any, size: int, start: int, end: int) -> Any:
    """Rows start..end of everything that has one row a sample."""

    def rows(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value[start:end] if value.dim() > 0 and value.shape[0] == size else value
        return value

    def walk(value: Any) -> Any:
        if isinstance(value, tuple | list) and _words(value) and len(value) == size:
            return value[start:end]
        if isinstance(value, Mapping):
            return _like(value, {key: walk(one) for key, one in value.items()})
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(walk(one) for one in value))
        if isinstance(value, tuple | list):
            return type(value)(walk(one) for one in value)
        return rows(value)

    return walk(batch)


def as_double(tensor: Tensor) -> Tensor:
    """Floating values in float64."""
    return tensor.double() if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor


def joined(several: list[Any]) -> Any:
    """One batch of several of the same structure."""
    first = several[0]
    if isinstance(first, Tensor):
        return torch.cat(several) if first.dim() > 0 else first
    if isinstance(first, Mapping):
        return _like(first, {key: joined([one[key] for one in several]) for key in first})
    if isinstance(first, tuple | list) and _words(first):
        return type(first)(word for one in several for word in one)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined(list(parts)) for parts in zip(*several, strict=True)))
    if isinstance(first, tuple | list):
        return type(first)(joined(list(parts)) for parts in zip(*several, strict=True))
    return first
