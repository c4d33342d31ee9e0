"""Batch samplers for an ordinary DataLoader; they yield (epoch, index), so that every worker sees the epoch."""

from collections.abc import Iterator

from torch.utils.data import Sampler

from lockstep.runtime.data.order import EpochPlan, order

Key = tuple[int, int]


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
    ) -> None:
        self.length, self.global_batch, self.accumulation = length, global_batch, accumulation
        self.seed, self.rank, self.num_ranks, self.shuffle = seed, rank, num_ranks, shuffle
        self.epoch = 0
        self.start = 0

    @property
    def plan(self) -> EpochPlan:
        """The steps that are left in the current epoch."""
        return EpochPlan(self.length, self.start, self.global_batch, self.accumulation, self.num_ranks)

    def keys(self, step: int, micro: int, rank: int | None = None) -> list[Key]:
        """The (epoch, index) pairs that a rank reads in one micro-step of the plan."""
        start, stop = self.plan.share(step, micro, self.rank if rank is None else rank)
        permutation = order(self.length, self.seed, self.epoch, self.shuffle)
        return [(self.epoch, index) for index in permutation[start:stop].tolist()]

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
