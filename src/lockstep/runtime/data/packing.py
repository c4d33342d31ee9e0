"""Steps counted in targets (tokens, pixels): where they begin, and which rank reads what, as pure functions."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


def step_starts(sizes: NDArray[np.int64], start: int, global_targets: int) -> list[int]:
    """Where the optimizer steps begin, and after the last one where the epoch ends.

    Each step takes as many samples as fit. Nothing is carried from one step to the next, so a run that goes on from
    the beginning of any step has the same steps as one that was not interrupted.

    Args:
        sizes: (length,) targets of each sample in the order of the epoch; a larger one than fits is a step by itself.
        start: position of the first step.
        global_targets: most targets of a step over all ranks.
    """
    # ends: (length + 1,) targets of all samples before each position
    ends = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    starts = [start]
    while starts[-1] < len(sizes):
        begin = starts[-1]
        starts.append(bisect_right(ends, ends[begin] + global_targets, begin + 2) - 1)
    return starts


def num_groups(descending: Sequence[int], most: int) -> int:
    """The fewest groups of neighbours whose padded targets (largest x number) do not exceed `most`.

    Args:
        descending: sizes, the largest first.
        most: at least the largest size.
    """
    groups = at = 0
    while at < len(descending):
        at += most // descending[at]
        groups += 1
    return groups


def cut(descending: Sequence[int], parts: int) -> list[int]:
    """Where groups of neighbours begin that are as even as can be in padded targets (largest x number).

    Args:
        descending: sizes, the largest first; at least `parts` of them.
        parts: number of groups.

    Returns: (parts + 1,) beginnings, the last one is the number of sizes.
    """
    low, high = descending[0], descending[0] * -(-len(descending) // parts)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if num_groups(descending, middle) <= parts else (middle + 1, high)
    bounds, at = [0], 0
    while at < len(descending):
        # A group leaves one sample for each group that is still to come.
        left = parts - len(bounds)
        at = min(at + low // descending[at], len(descending) - left)
        bounds.append(at)
    return bounds


def micro_steps(descending: Sequence[int], num_ranks: int, micro_targets: int | None) -> int:
    """Micro-steps of a step with these sizes: as few as `micro_targets` allows, each rank has a sample in each."""
    if micro_targets is None:
        return 1
    wanted = -(-num_groups(descending, micro_targets) // num_ranks)
    return max(1, min(wanted, len(descending) // num_ranks))


def deal(sizes: Sequence[int], num_ranks: int, micro_targets: int | None, turn: int = 0) -> list[list[list[int]]]:
    """Who reads what of one step: [micro-step][rank] -> indices into `sizes`.

    Samples of like size come together, so that little is padded; the ranks of a micro-step have like amounts of work,
    and take their turns with the larger ones.

    Args:
        sizes: targets of the samples of the step, at least one for each rank.
        num_ranks: how many ranks there are.
        micro_targets: most padded targets (longest x number) of one rank in one forward. It is kept, unless there are
            too few samples for an equal number of micro-steps on every rank; then small ones go in pairs.
        turn: which rank comes first.
    """
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    descending = [sizes[index] for index in order]
    steps = micro_steps(descending, num_ranks, micro_targets)
    bounds = cut(descending, steps * num_ranks)
    groups = [order[low:high] for low, high in pairwise(bounds)]
    groups.sort(key=lambda group: -sizes[group[0]] * len(group))
    rows = [groups[step * num_ranks : (step + 1) * num_ranks] for step in range(steps)]
    first = turn % num_ranks
    return [[*row[first:], *row[:first]][:: -1 if step % 2 else 1] for step, row in enumerate(rows)]


class PackedPlan:
    """What every optimizer step of an epoch reads, where steps are counted in targets.

    Step t takes the next samples of the order that have at most `global_targets` targets together. The last step of
    an epoch may be smaller. It is dropped only when it has fewer samples than there are ranks.

    Args:
        sizes: (length,) targets of each sample in the order of the epoch.
        start: samples consumed already, where a run is resumed in mid-epoch.
        global_targets: most targets of an optimizer step over all ranks; at least `num_ranks` times the largest size.
        micro_targets: most padded targets of one rank in one forward, None for no limit.
        num_ranks: how many ranks there are.
    """

    def __init__(
        self, sizes: NDArray[np.int64], start: int, global_targets: int, micro_targets: int | None, num_ranks: int
    ) -> None:
        self.sizes, self.start = sizes, start
        self.global_targets, self.micro_targets, self.num_ranks = global_targets, micro_targets, num_ranks
        self.length = len(sizes)
        self._starts = step_starts(sizes, start, global_targets)
        self._dealt: tuple[int, list[list[list[int]]]] = (-1, [])

    @property
    def dropped(self) -> int:
        """Samples at the end that are too few to give one to every rank."""
        last = self._starts[-1] - self._starts[-2] if len(self._starts) > 1 else 0
        return last if last < self.num_ranks else 0

    @property
    def num_steps(self) -> int:
        """Optimizer steps that are left in the epoch."""
        return len(self._starts) - 1 - bool(self.dropped)

    def size(self, step: int) -> int:
        """Samples of a step over all ranks."""
        return self._starts[step + 1] - self._starts[step]

    def step_at(self, position: int) -> int:
        """The step that reads a position of the order."""
        return bisect_right(self._starts, position) - 1

    def num_micro(self, step: int) -> int:
        """Micro-steps of a step, the same on every rank."""
        return micro_steps(sorted(self._of(step), reverse=True), self.num_ranks, self.micro_targets)

    def positions(self, step: int, micro: int, rank: int) -> NDArray[np.int64]:
        """The positions of the order that a rank reads in one micro-step."""
        if self._dealt[0] != step:
            self._dealt = step, deal(self._of(step), self.num_ranks, self.micro_targets, self._starts[step])
        return self._starts[step] + np.array(self._dealt[1][micro][rank], dtype=np.int64)

    @cached_property
    def most_micro(self) -> int:
        """The largest number of micro-steps of the steps that are left."""
        return max((self.num_micro(step) for step in range(self.num_steps)), default=1)

    def _of(self, step: int) -> list[int]:
        return self._sizes[self._starts[step] : self._starts[step + 1]]

    @cached_property
    def _sizes(self) -> list[int]:
        sizes: list[int] = self.sizes.tolist()
        return sizes
