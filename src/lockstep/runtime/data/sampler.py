"""Batch samplers for an ordinary DataLoader; they yield (epoch, index), so that every worker sees the epoch."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from lockstep.runtime.data.bucket import bucketed
from lockstep.runtime.data.order import EpochPlan, order
from lockstep.runtime.data.packing import PackedPlan, step_starts
from lockstep.runtime.data.sizing import Sizing, digest

Key = tuple[int, int]

COUNTED = 5_000_000
"""Samples up to which steps are counted epoch by epoch where their number varies; their mean stands for more epochs."""


class TrainSampler(Sampler[list[Key]]):
    """One rank's micro-batches of an epoch, in step order.

    Set `epoch` and `start` (samples already consumed) before iterating; the position is never counted here, since
    workers read ahead of what the training has consumed.

    Args:
        length: samples in the data set.
        global_batch: samples of one optimizer step over all ranks.
        accumulation: micro-steps of a step.
        seed: seed of the shared order.
        rank: this rank.
        num_ranks: how many ranks there are.
        shuffle: a new order each epoch; otherwise the order of the data set.
        sizing: how large the samples are, where the steps or the order depend on it; steps that are counted in targets
            leave `global_batch` and `accumulation` unused.
    """

    def __init__(
        self,
        length: int,
        global_batch: int,
        accumulation: int,
        seed: int,
        rank: int,
        num_ranks: int,
        shuffle: bool = True,
        sizing: Sizing | None = None,
    ) -> None:
        self.length, self.global_batch, self.accumulation = length, global_batch, accumulation
        self.seed, self.rank, self.num_ranks, self.shuffle = seed, rank, num_ranks, shuffle
        self.sizing = sizing
        self.epoch = 0
        self.start = 0
        self._steps: dict[int, tuple[int, int]] = {}
        self._order: tuple[int, NDArray[np.int64]] | None = None
        self._packed: tuple[tuple[int, int], PackedPlan] | None = None

    @property
    def plan(self) -> EpochPlan | PackedPlan:
        """The steps that are left in the current epoch."""
        if self.sizing is None or self.sizing.global_targets is None:
            return EpochPlan(self.length, self.start, self.global_batch, self.accumulation, self.num_ranks)
        if self._packed is None or self._packed[0] != (self.epoch, self.start):
            packed = self.sizing.plan(self.order(self.epoch), self.start, self.num_ranks)
            self._packed = (self.epoch, self.start), packed
        return self._packed[1]

    def order(self, epoch: int) -> NDArray[np.int64]:
        """The order of an epoch, the same for every N: (length,) indices."""
        if self._order is None or self._order[0] != epoch:
            permutation = order(self.length, self.seed, epoch, self.shuffle)
            if self.sizing is not None and self.sizing.bucket is not None:
                permutation = bucketed(permutation, self.sizing.sizes, self.sizing.bucket, self.seed, epoch)
            self._order = epoch, permutation.numpy()
        return self._order[1]

    @property
    def signature(self) -> str:
        """What the order of an epoch depends on. A run that goes on in the middle of one needs the same."""
        parts = [f"{self.length} samples", f"seed={self.seed}", f"data.shuffle={str(self.shuffle).lower()}"]
        if self.sizing is not None and self.sizing.bucket is not None:
            parts += [f"data.bucket={self.sizing.bucket}", f"sizes {digest(self.sizing.sizes)}"]
        return ", ".join(parts)

    def num_steps(self, epochs: int, num_ranks: int | None = None) -> int:
        """Optimizer steps of the first epochs.

        Args:
            epochs: how many.
            num_ranks: as many as that many ranks would take, who drop a smaller tail than themselves; None for ours.
        """
        ranks = num_ranks or self.num_ranks
        if self.sizing is None or self.sizing.global_targets is None:
            return EpochPlan(self.length, 0, self.global_batch, self.accumulation, ranks).num_steps * epochs
        looked_at = min(epochs, max(1, COUNTED // self.length))
        steps = sum(full + (last >= ranks) for full, last in map(self._epoch_steps, range(looked_at)))
        return steps if looked_at == epochs else round(steps / looked_at * epochs)

    def _epoch_steps(self, epoch: int) -> tuple[int, int]:
        """Steps of an epoch before the last one, and the samples of the last one."""
        if epoch not in self._steps:
            assert self.sizing is not None and self.sizing.global_targets is not None
            starts = step_starts(self.sizing.sizes[self.order(epoch)], 0, self.sizing.global_targets)
            self._steps[epoch] = len(starts) - 2, starts[-1] - starts[-2]
        return self._steps[epoch]

    def keys(self, step: int, micro: int, rank: int | None = None) -> list[Key]:
        """The (epoch, index) pairs that a rank reads in one micro-step of the plan."""
        positions = self.plan.positions(step, micro, self.rank if rank is None else rank)
        indices = self.order(self.epoch)[positions]
        return [(self.epoch, index) for index in indices.tolist()]

    def __iter__(self) -> Iterator[list[Key]]:
        plan = self.plan
        for step in range(plan.num_steps):
            for micro in range(plan.num_micro(step)):
                yield self.keys(step, micro)

    def __len__(self) -> int:
        return sum(self.plan.num_micro(step) for step in range(self.plan.num_steps))


class EvalSampler(Sampler[list[Key]]):
    """Whole evaluation batches dealt out in turn: batch k goes to rank k mod N; nothing is padded or repeated."""

    def __init__(self, length: int, batch: int, rank: int, num_ranks: int) -> None:
        self.length, self.batch, self.rank, self.num_ranks = length, batch, rank, num_ranks

    @property
    def batches(self) -> range:
        """The numbers k of this rank's batches."""
        return range(self.rank, -(-self.length // self.batch), self.num_ranks)

    def __iter__(self) -> Iterator[list[Key]]:
        for k in self.batches:
            yield [(0, index) for index in range(k * self.batch, min((k + 1) * self.batch, self.length))]

    def __len__(self) -> int:
        return len(self.batches)
