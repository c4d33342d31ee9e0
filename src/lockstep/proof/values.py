"""Values of two takes side by side: relative errors of gradients, parameters and module outputs, in float64."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.proof.align import StepView
from lockstep.proof.takes import Take
from lockstep.trace.events import Optimizer, Step
from lockstep.trace.sink import read_tensor
from lockstep.trace.trace import RankTrace

Array = np.ndarray[Any, Any]
TINY = 1e-30
"""Numbers near float32's smallest lose bits when the wrapper halves them before it adds: g / 2 + g / 2 is not g there.
What comes of it stays below this, also where Adam divides by its eps."""


@dataclass(frozen=True)
class Values:
    """One kind of values at one step: {key: array}, only of keys that were kept."""

    arrays: Mapping[str, Array]

    @property
    def norm(self) -> float:
        """Of all together."""
        return float(np.sqrt(sum(_square(one) for one in self.arrays.values())))


def gradients(take: Take, rank: int, view: StepView) -> Values:
    """Of one rank at one step."""
    return _values(take, rank, view, "grad_tensors")


def parameters(take: Take, rank: int, view: StepView) -> Values:
    """After the step."""
    return _values(take, rank, view, "param_tensors")


def starts(take: Take, rank: int, view: StepView) -> Values:
    """Before the first step."""
    return _values(take, rank, view, "start_tensors")


def _values(take: Take, rank: int, view: StepView, kind: str) -> Values:
    """What a rank kept at a step; of a sharded value the parts of all ranks, one after the other."""
    split = _sharded(take.trace.ranks[rank], view.step.optimizer)
    parts = _steps(take, view) if split else {}
    found: dict[str, Array | None] = {}
    for key, place in getattr(view.step, kind).items():
        if key not in split:
            found[key] = read_tensor(take.folder, rank, place)
            continue
        pieces = [read_tensor(take.folder, r, getattr(step, kind).get(key, -1)) for r, step in parts.items()]
        whole = len(pieces) == take.trace.num_ranks and all(piece is not None for piece in pieces)
        found[key] = np.concatenate([piece for piece in pieces if piece is not None]) if whole else None
    return Values({key: value.astype(np.float64) for key, value in found.items() if value is not None})


def _sharded(rank: RankTrace, optimizer: int) -> frozenset[str]:
    """The keys of an optimizer of which each rank holds a part."""
    told = [event for event in rank.of(Optimizer) if event.optimizer == optimizer]
    return frozenset(key for event in told for key, split in zip(event.keys, event.sharded, strict=False) if split)


def _steps(take: Take, view: StepView) -> dict[int, Step]:
    """The same step on every rank that has it, in the order of the ranks."""
    found = {}
    for number, rank in enumerate(take.trace.ranks):
        for step in rank.of(Step):
            if (step.optimizer, step.number) == view.key:
                found[number] = step
    return found


def single(value: Array) -> Values:
    """One array by itself."""
    return Values({"": value.astype(np.float64)})


def errors(wanted: Values, seen: Values) -> dict[str, float]:
    """{key: norm of the difference over the norm of all that is wanted}; inf where shapes differ, or for NaN and inf
    that the other side does not have."""
    scale = wanted.norm or 1.0
    found = {}
    for key in wanted.arrays.keys() | seen.arrays.keys():
        one, other = wanted.arrays.get(key), seen.arrays.get(key)
        if one is None or other is None:
            present = one if one is not None else other
            assert present is not None
            found[key] = float(np.sqrt(_square(present))) / scale  # a missing gradient is a zero one
        else:
            found[key] = _error(one, other, scale)
    return found


def _error(one: Array, other: Array, scale: float) -> float:
    if np.array_equal(one, other, equal_nan=True):
        return 0.0
    if one.shape != other.shape:
        return float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        error = float(np.sqrt(_square(one - other))) / scale
    return error if np.isfinite(error) and np.isfinite(scale) else float("inf")


def negligible(one: Array | None, other: Array | None) -> bool:
    """Whether two arrays differ by no more than what is lost near the smallest numbers."""
    if one is None or other is None or one.shape != other.shape:
        return False
    with np.errstate(invalid="ignore"):
        return bool(((one == other) | (np.abs(one - other) <= TINY) | (np.isnan(one) & np.isnan(other))).all())


def total(by_key: Mapping[str, float]) -> float:
    """The relative error of all together."""
    return float(np.sqrt(sum(error * error for error in by_key.values())))


def factor(wanted: Values, seen: Values) -> float | None:
    """The number c for which seen = c * wanted to 1e-6 of its norm; None where there is none, or c is 1 or 0."""
    shared = [key for key in wanted.arrays if key in seen.arrays and seen.arrays[key].shape == wanted.arrays[key].shape]
    if len(shared) != len(wanted.arrays) or not shared:
        return None
    a = np.concatenate([wanted.arrays[key].reshape(-1) for key in shared])
    b = np.concatenate([seen.arrays[key].reshape(-1) for key in shared])
    below = float(a @ a)
    if below == 0 or not np.isfinite(below) or not np.isfinite(b).all() or not b.any():
        return None
    ratio = float(a @ b) / below
    rest = float(np.linalg.norm(b - ratio * a))
    return ratio if rest <= 1e-6 * abs(ratio) * below**0.5 and abs(ratio - 1) > 1e-9 else None


def _square(value: Array) -> float:
    flat = value.reshape(-1)
    return float(flat @ flat)


def shown(value: Array) -> str:
    """A value for people: its norm and first elements."""
    flat = value.reshape(-1)
    if flat.size == 1:
        return f"{flat[0]:.9g}"
    first = ", ".join(f"{one:.5g}" for one in flat[:3])
    return f"norm {np.linalg.norm(flat):.6g} ({first}{', ...' if flat.size > 3 else ''})"
