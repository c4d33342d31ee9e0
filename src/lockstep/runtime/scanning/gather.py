"""What a scan has seen of each split: some twenty bytes a sample, whatever a sample's size."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lockstep.runtime.scanning.build import Build
from lockstep.runtime.scanning.read import Read

Columns = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.uint64]]
"""Index, number of its build, bytes, digest of the files."""


@dataclass
class Seen:
    """Of one split.

    Attributes:
        done: samples that were tried.
        counts: (num_classes,) labels by class, None where the recipe names no labels.
        ignored: labels with the ignored value.
    """

    split: str
    done: int = 0
    counts: NDArray[np.int64] | None = None
    ignored: int = 0
    _parts: list[Columns] = field(default_factory=list)
    _builds: list[Build] = field(default_factory=list)
    _numbers: dict[Build, int] = field(default_factory=dict)

    def add(self, read: Read, known: list[int]) -> None:
        """Add a block.

        Args:
            read: the block.
            known: our number of every build that its worker has met in this split, by its own; new ones are added.
        """
        self.done += read.done
        known += [self._number(build) for build in read.new]
        numbers = np.array([known[number] for number in read.builds.tolist()], np.int32)
        self._parts.append((read.indices, numbers, read.sizes, read.names))
        # A block of a slow set is one sample, and an array has a hundred bytes of its own.
        while len(self._parts) > 1 and 2 * len(self._parts[-1][0]) >= len(self._parts[-2][0]):
            last = self._parts.pop()
            self._parts[-1] = _joined(self._parts[-1], last)
        self.ignored += read.ignored
        if read.counts is not None:
            self.counts = read.counts if self.counts is None else _added(self.counts, read.counts)

    def _number(self, build: Build) -> int:
        number = self._numbers.setdefault(build, len(self._builds))
        if number == len(self._builds):
            self._builds.append(build)
        return number

    def table(self) -> "Table":
        """Everything by sample, in the order of the split."""
        if not self._parts:
            nothing = np.array([], np.int64)
            return Table(nothing, nothing.astype(np.int32), nothing, nothing.astype(np.uint64), self._builds)
        indices, builds, sizes, names = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        order = np.argsort(indices, kind="stable")
        names = names[order] if len(names) == len(order) else names[:0]
        return Table(indices[order], builds[order], sizes[order], names, self._builds)


def _joined(one: Columns, other: Columns) -> Columns:
    join = np.concatenate
    return join((one[0], other[0])), join((one[1], other[1])), join((one[2], other[2])), join((one[3], other[3]))


def _added(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    length = max(len(one), len(other))
    return np.pad(one, (0, length - len(one))) + np.pad(other, (0, length - len(other)))


@dataclass(frozen=True)
class Table:
    """The samples of a split that could be read, sorted.

    Attributes:
        indices, numbers, sizes: (n,) index, number of its build, bytes.
        names: (n,) digests of the files, or empty.
        builds: by number.
    """

    indices: NDArray[np.int64]
    numbers: NDArray[np.int32]
    sizes: NDArray[np.int64]
    names: NDArray[np.uint64]
    builds: list[Build]

    def by_build(self) -> list[tuple[Build, NDArray[np.int64]]]:
        """Builds with the indices of their samples: the most frequent first, at a tie the one met first."""
        if not len(self.indices):
            return []
        order = np.argsort(self.numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(self.numbers[order])) + 1
        groups = np.split(order, cuts)
        found = [(self.builds[int(self.numbers[group[0]])], self.indices[group]) for group in groups]
        return sorted(found, key=lambda one: (-len(one[1]), int(one[1][0])))


def repeats(table: Table) -> Iterator[tuple[int, int]]:
    """Samples of the same files within a split: (index, the first index with them)."""
    names, first, back = np.unique(table.names, return_index=True, return_inverse=True)
    if len(names) == len(table.names):
        return
    starts = first[back]
    for position in np.flatnonzero(starts != np.arange(len(table.names))):
        yield int(table.indices[position]), int(table.indices[starts[position]])


def shared(one: Table, other: Table) -> Iterator[tuple[int, int]]:
    """Samples of the same files in two splits: (index in the first, index in the other)."""
    _, here, there = np.intersect1d(one.names, other.names, return_indices=True)
    yield from sorted(zip(one.indices[here].tolist(), other.indices[there].tolist(), strict=True))
