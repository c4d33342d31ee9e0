"""The order of an epoch and each rank's share of it, as pure functions of (seed, epoch, step, rank, N)."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from lockstep.runtime.streams import seed_of


@lru_cache(maxsize=4)
def order(length: int, seed: int, epoch: int, shuffle: bool = True) -> Tensor:
    """The one permutation of an epoch, the same for every N: (length,) int64."""
    if not shuffle:
        return torch.arange(length)
    generator = torch.Generator().manual_seed(seed_of(seed, "order", epoch))
    return torch.randperm(length, generator=generator)


def part(size: int, index: int, num_parts: int) -> tuple[int, int]:
    """The range [start, stop) of part `index` when `size` things are dealt as evenly as can be."""
    return index * size // num_parts, (index + 1) * size // num_parts


@dataclass(frozen=True)
class EpochPlan:
    """What every optimizer step of one epoch reads.

    Step t takes the next `global_batch` positions of the order; a micro-step takes a part of the step, a rank a
    part of the micro-step. The last step of an epoch may be smaller. It is dropped only when it has fewer samples
    than there are ranks.

    Attributes:
        length: samples in the epoch.
        start: samples consumed already, where a run is resumed in mid-epoch.
        global_batch: samples of one optimizer step over all ranks.
        accumulation: micro-steps of a full step.
    """

    length: int
    start: int
    global_batch: int
    accumulation: int
    num_ranks: int

    @property
    def tail(self) -> int:
        """Samples after the last full step."""
        return (self.length - self.start) % self.global_batch

    @property
    def dropped(self) -> int:
        """Samples at the end that are too few to give one to every rank."""
        return self.tail if self.tail < self.num_ranks else 0

    @property
    def num_steps(self) -> int:
        """Optimizer steps that are left in the epoch."""
        return (self.length - self.start) // self.global_batch + (self.tail > self.dropped)

    def size(self, step: int) -> int:
        """Samples of a step over all ranks."""
        return min(self.global_batch, self.length - self.start - step * self.global_batch)

    def num_micro(self, step: int) -> int:
        """Micro-steps of a step; fewer for a small last step, so that no rank goes without a sample."""
        size, largest = self.size(step), -(-self.global_batch // self.accumulation)
        wanted = self.accumulation if size == self.global_batch else -(-size // largest)
        return max(1, min(wanted, size // self.num_ranks))

    def step_at(self, position: int) -> int:
        """The step that reads a position of the order."""
        return (position - self.start) // self.global_batch

    def positions(self, step: int, micro: int, rank: int) -> slice:
        """The positions of the order that a rank reads in one micro-step."""
        return slice(*self.share(step, micro, rank))

    def share(self, step: int, micro: int, rank: int) -> tuple[int, int]:
        """The positions [start, stop) of the order that a rank reads in one micro-step."""
        low, high = part(self.size(step), micro, self.num_micro(step))
        # Where parts differ by one, each rank takes its turn: the larger ones must not all go to the last rank.
        turn = self.start // self.global_batch + step + micro
        start, stop = part(high - low, (rank + turn) % self.num_ranks, self.num_ranks)
        base = self.start + step * self.global_batch + low
        return base + start, base + stop
