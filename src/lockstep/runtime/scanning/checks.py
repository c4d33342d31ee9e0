"""Pure checks of one sample, and of the labels of a batch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.runtime.recipe import Labels
from lockstep.runtime.scanning.build import Leaf

_MOST_COUNTED = 65_536
"""Labels up to here are counted in one pass; a class table of that length is still small."""
_MOST_SHOWN = 4


def value_faults(leaves: list[Leaf]) -> Iterator[tuple[str, str]]:
    """What is wrong with the values of a sample, as (kind, text): leaves that are empty, or not finite."""
    for path, value in leaves:
        name = path or "the sample"
        if _is_empty(value):
            yield "empty", f"{name} has no values{_shape_of(value)}"
        elif (bad := _nonfinite(value)) is not None:
            yield "nonfinite", f"{name}: {bad}"
    if not leaves:
        yield "empty", "the sample has nothing in it"


def _is_empty(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 0
    if isinstance(value, np.ndarray):
        return value.size == 0
    return isinstance(value, str | bytes | list | tuple) and len(value) == 0


def _shape_of(value: Any) -> str:
    shape = None if isinstance(value, Tensor) and value.is_nested else getattr(value, "shape", None)
    return f" (shape {tuple(shape)})" if shape is not None else ""


def _nonfinite(value: Any) -> str | None:
    """What is not finite in a leaf, None where all is."""
    if isinstance(value, Tensor):
        return _nonfinite_tensor(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value}"
    if isinstance(value, list | tuple):
        if not any(type(one) is float for one in value):
            return None
        return _told(torch.tensor(value, dtype=torch.float64))
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fc":
        return None if bool(np.isfinite(value).all()) else _told(torch.from_numpy(np.atleast_1d(value).astype("c16")))
    return None


def _nonfinite_tensor(value: Tensor) -> str | None:
    if not (value.is_floating_point() or value.is_complex()) or value.is_quantized or value.is_meta:
        return None
    value = value.detach()
    if value.is_nested:
        return next((bad for part in value.unbind() if (bad := _nonfinite_tensor(part)) is not None), None)
    if value.layout is not torch.strided:
        value = value.to_dense() if value.layout is not torch.sparse_coo else value.coalesce().values()
    if value.is_floating_point():
        # One pass without a second array; a sum that is not finite may also have overflown, which the slow way tells.
        wide = value.dtype if value.dtype in (torch.float32, torch.float64) else torch.float32
        if math.isfinite(value.sum(dtype=wide).item()):
            return None
    return _told(value)


def _told(value: Tensor) -> str | None:
    bad = ~torch.isfinite(value)
    count = int(bad.sum())
    if count == 0:
        return None
    nans = int(torch.isnan(value).sum())
    parts = [f"{number} {word}" for number, word in ((nans, "NaN"), (count - nans, "infinite")) if number]
    if value.dim() == 0:
        return parts[0].removeprefix("1 ")
    first = tuple(bad.nonzero()[0].tolist())
    return f"{' and '.join(parts)} of {value.numel()} values, the first at {first[0] if len(first) == 1 else first}"


@dataclass(frozen=True)
class Census:
    """How often each label occurs in a batch.

    Attributes:
        counts: (num_classes,) occurrences of the valid labels.
        ignored: occurrences of the ignored value.
        wrong: occurrences of each value outside the classes, most frequent first.
    """

    counts: NDArray[np.int64]
    ignored: int
    wrong: tuple[tuple[float, int], ...]


def census(labels: Labels) -> Census:
    """Count the labels of a batch."""
    values = torch.as_tensor(labels.values).detach().reshape(-1)
    classes, ignore = labels.num_classes, labels.ignore_index
    if values.numel() == 0:
        return Census(np.zeros(classes, np.int64), 0, ())
    if values.is_floating_point():
        return _by_value(values.double().numpy(), classes, ignore)
    if values.dtype == torch.bool:
        values = values.to(torch.uint8)
    low, high = (int(one) for one in torch.aminmax(values))
    if low < 0 or high >= max(classes, _MOST_COUNTED):
        return _by_value(values.long().numpy(), classes, ignore)
    counted = torch.bincount(values, minlength=classes).numpy()
    return _split(counted[:classes], {classes + i: int(n) for i, n in enumerate(counted[classes:]) if n}, ignore)


def _by_value(values: NDArray[Any], classes: int, ignore: int | None) -> Census:
    found, numbers = np.unique(values, return_counts=True)
    counts, outside = np.zeros(classes, np.int64), {}
    for value, number in zip(found.tolist(), numbers.tolist(), strict=True):
        if 0 <= value < classes:
            counts[int(value)] += number
        else:
            outside[value] = number
    return _split(counts, outside, ignore)


def _split(counts: NDArray[np.int64], outside: dict[Any, int], ignore: int | None) -> Census:
    ignored = outside.pop(ignore, 0) if ignore is not None else 0
    if ignore is not None and 0 <= ignore < len(counts):
        counts = counts.copy()
        ignored, counts[ignore] = int(counts[ignore]), 0
    wrong = sorted(outside.items(), key=lambda item: (-item[1], str(item[0])))
    return Census(counts.astype(np.int64), ignored, tuple(wrong))


def label_text(found: Census, labels: Labels) -> str:
    """What is wrong with the labels of one sample."""
    total = int(torch.as_tensor(labels.values).numel())
    allowed = f"0 .. {labels.num_classes - 1}"
    if labels.ignore_index is not None:
        allowed += f", or {labels.ignore_index} (ignored)"
    of = f" of {total}" if total > 1 else ""
    shown = [f"{value:g} ({number}{of})" if total > 1 else f"{value:g}" for value, number in found.wrong[:_MOST_SHOWN]]
    more = f" and {len(found.wrong) - _MOST_SHOWN} other values" if len(found.wrong) > _MOST_SHOWN else ""
    return f"{', '.join(shown)}{more}; allowed: {allowed}"
