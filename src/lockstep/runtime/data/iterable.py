"""An iterable data set split by rank x worker, so that every N sees the same global batches."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from lockstep.runtime.data.broken import Broken, unreadable
from lockstep.runtime.data.order import EpochPlan
from lockstep.runtime.data.samples import Fetched
from lockstep.runtime.streams import preserved, seed_sample


class SplitStream(IterableDataset[Fetched | Broken]):
    """One rank's micro-batches of a stream that is the same on every rank.

    Every rank and worker reads the stream and keeps its own share of each global batch, so the stream needs no
    support for splitting. Item `p` is read under the sample stream of position `p`. Set `epoch` and `start` (items
    already consumed) before iterating; consumed items are read and passed over.
    """

    def __init__(
        self, dataset: IterableDataset[Any], global_batch: int, accumulation: int, seed: int, rank: int, num_ranks: int
    ) -> None:
        self.dataset, self.global_batch, self.accumulation = dataset, global_batch, accumulation
        self.seed, self.rank, self.num_ranks = seed, rank, num_ranks
        self.epoch = 0
        self.start = 0

    def __iter__(self) -> Iterator[Fetched | Broken]:
        worker = get_worker_info()
        mine, num_workers = (worker.id, worker.num_workers) if worker else (0, 1)
        micro = 0
        for block in self._blocks():
            shares = [block] if isinstance(block, Broken) else self._shares(block)
            for share in shares:
                # The DataLoader takes from its workers in turn: micro-step m must come from worker m mod W.
                if micro % num_workers == mine:
                    yield share
                micro += 1

    def _shares(self, block: Fetched) -> list[Fetched | Broken]:
        """This rank's part of one global batch, a list of micro-steps; a last block below N samples is dropped."""
        plan = EpochPlan(len(block.samples), 0, self.global_batch, self.accumulation, self.num_ranks)
        bounds = [plan.share(0, m, self.rank) for m in range(plan.num_micro(0))] if plan.num_steps else []
        return [Fetched(block.keys[low:high], block.samples[low:high]) for low, high in bounds]

    def _blocks(self) -> Iterator[Fetched | Broken]:
        """The stream in global batches from `start` on."""
        keys: list[tuple[int, int]] = []
        samples: list[Any] = []
        for position, item in enumerate(self._items()):
            if isinstance(item, Broken):
                yield item
                return
            if position < self.start:
                continue
            keys.append((self.epoch, position))
            samples.append(item)
            if len(samples) == self.global_batch:
                yield Fetched(keys, samples)
                keys, samples = [], []
        if samples:
            yield Fetched(keys, samples)

    def _items(self) -> Iterator[Any]:
        outside_worker = get_worker_info() is None
        iterator: Iterator[Any] | None = None
        position = 0
        while True:
            with preserved() if outside_worker else nullcontext():
                seed_sample(self.seed, "train", self.epoch, position)
                try:
                    iterator = iter(self.dataset) if iterator is None else iterator
                    item = next(iterator)
                except StopIteration:
                    return
                except Exception as error:
                    item = unreadable(error, "train", self.epoch, position)
            yield item
            position += 1
