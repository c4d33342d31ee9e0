"""Which samples do not fit to the others: builds compared with the most frequent one, and with what collate takes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.runtime.scanning.build import Build, shape_text
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.worker import Pair

_TRIED, _MOST_TRIED = 8, 256
"""Builds of one pattern that are tried for all of them; and how many singly where one of those does not fit."""

Groups = Sequence[tuple[Build, NDArray[np.int64]]]
Ask = Callable[[list[Pair]], dict[Pair, str | None]]


@dataclass(frozen=True)
class Odd:
    """Samples of one build that do not fit: their indices, the kind of finding, and what is wrong."""

    indices: NDArray[np.int64]
    kind: str
    text: str


def disagreements(split: str, groups: Groups, ask: Ask) -> Iterator[Odd]:
    """The samples that cannot be in a batch with the usual ones.

    A build may differ where the recipe's collate takes it: pairs of samples are tried. Builds that differ from the
    usual one in the same way (the same axes have other lengths) are tried by some of them, the shortest and the
    longest among these.

    Args:
        split: `train` or `val`.
        groups: builds and the indices of their samples, the usual one first.
        ask: tells for pairs of samples why they cannot be in one batch.
    """
    if len(groups) < 2:
        return
    usual, rest = groups[0], groups[1:]
    patterns: dict[object, list[tuple[Build, NDArray[np.int64]]]] = {}
    for group in rest:
        patterns.setdefault(_pattern(usual[0], group[0]), []).append(group)
    for members in patterns.values():
        for (build, indices), reason in _unfit(split, usual, members, ask):
            yield Odd(indices, *_told(usual[0], build, reason))


def _pattern(usual: Build, other: Build) -> object:
    """In which way a build differs: the axes of other length, or the whole of it where more than lengths differ."""
    if usual.leaves != other.leaves:
        return other.leaves
    axes = []
    for number, (one, two) in enumerate(zip(usual.shapes, other.shapes, strict=True)):
        if one is None or two is None or len(one) != len(two):
            if one != two:
                axes.append((number, two and len(two)))
            continue
        axes += [(number, axis) for axis, (a, b) in enumerate(zip(one, two, strict=True)) if a != b]
    return tuple(axes)


def _unfit(
    split: str, usual: tuple[Build, NDArray[np.int64]], members: Groups, ask: Ask
) -> Iterator[tuple[tuple[Build, NDArray[np.int64]], str]]:
    """The builds of a pattern that do not fit, each with the reason."""
    by_size = sorted(members, key=lambda one: (sum(_volume(shape) for shape in one[0].shapes), int(one[1][0])))
    chosen = sorted({round(i * (len(by_size) - 1) / (_TRIED - 1)) for i in range(_TRIED)})
    reasons = _ask(split, usual, [by_size[i] for i in chosen], ask)
    if len(by_size) > len(chosen) and any(reason is not None for reason in reasons.values()):
        left = [one for one in members if int(one[1][0]) not in reasons]
        reasons |= _ask(split, usual, left[:_MOST_TRIED], ask)
        reasons |= {int(one[1][0]): "as others of its kind" for one in left[_MOST_TRIED:]}
    for one in members:
        reason = reasons.get(int(one[1][0]))
        if reason is not None:
            yield one, reason


def _ask(split: str, usual: tuple[Build, NDArray[np.int64]], members: Groups, ask: Ask) -> dict[int, str | None]:
    pairs = {int(indices[0]): Pair(split, int(usual[1][0]), int(indices[0])) for _, indices in members}
    reasons = ask(list(pairs.values()))
    return {first: reasons[pair] for first, pair in pairs.items()}


def _volume(shape: tuple[int, ...] | None) -> int:
    return int(np.prod(shape)) if shape else 1


def _told(usual: Build, other: Build, reason: str) -> tuple[str, str]:
    """The kind of finding and its text."""
    here, there = dict(other.leaves), dict(usual.leaves)
    missing, extra = [name for name in there if name not in here], [name for name in here if name not in there]
    if missing and len(missing) == len(there):
        has = ", ".join(name or f"a {kind}" for name, kind in other.leaves) or "nothing"
        return "structure", f"is {has} where most are {', '.join(name or f'a {kind}' for name, kind in usual.leaves)}"
    if missing or extra:
        lacks = f"lacks {', '.join(missing)}" if missing else ""
        more = f"has {', '.join(extra)}, which most lack" if extra else ""
        return "structure", " and ".join(part for part in (lacks, more) if part)
    types = [
        f"{_name(name)} is a {here[name]}, most often a {there[name]}" for name in there if here[name] != there[name]
    ]
    if types:
        return "dtype", "; ".join(types)
    rows = zip(usual.leaves, usual.shapes, other.shapes, strict=True)
    shapes = [f"{_name(name)} is {shape_text(b)}, most often {shape_text(a)}" for (name, _), a, b in rows if a != b]
    return "shape", f"{'; '.join(shapes)}; {reason}"


def _name(path: str) -> str:
    return path or "the sample"


def findings_of(split: str, odd: Odd, where: Callable[[int], str]) -> Iterator[Finding]:
    """A finding for every sample of an odd build."""
    for index in odd.indices.tolist():
        yield Finding(odd.kind, split, index, where(index), odd.text)
