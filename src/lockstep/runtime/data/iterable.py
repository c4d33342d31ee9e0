"""An iterable data set split by rank x worker, so that every N sees the same global batches."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from lockstep.runtime.data.broken import Broken, unreadable
from lockstep.runtime.data.order import EpochPlan
from lockstep.runtime.data.samples import Fetched
from lockstep.runtime.data.stateful import Stateful, StateTaker, StreamState
from lockstep.runtime.streams import preserved, seed_sample


@contextmanager
def _unsplit() -> Iterator[None]:
    """Data sets look up their worker to split themselves among the workers, and each worker is to read all of it."""
    worker = torch_worker._worker_info
    torch_worker._worker_info = None
    try:
        yield
    finally:
        torch_worker._worker_info = worker


class SplitStream(IterableDataset[Fetched | Broken]):
    """One rank's micro-batches of a stream that is the same on every rank.

    Every rank and worker reads the stream and keeps its own share of each global batch, so the stream needs no
    support for splitting. Item `p` is read under the sample stream of position `p`. Set `epoch` and `start` (items
    already consumed) before iterating; consumed items are read and passed over, but for those before `resume_from`.

    Attributes:
        resume_from: a state that the data set gave in an earlier run; used in its own epoch.
        keeps_state: whether the data set's state after a step travels with the last micro-batch of the step.
    """

    def __init__(
        self, dataset: IterableDataset[Any], global_batch: int, accumulation: int, seed: int, rank: int, num_ranks: int
    ) -> None:
        self.dataset, self.global_batch, self.accumulation = dataset, global_batch, accumulation
        self.seed, self.rank, self.num_ranks = seed, rank, num_ranks
        self.epoch = 0
        self.start = 0
        self.resume_from: StreamState | None = None
        self._initial: tuple[Any] | None = None  # the data set's state before it was read for the first time
        self.keeps_state = isinstance(dataset, Stateful) and rank == 0  # who saves

    def __iter__(self) -> Iterator[Fetched | Broken]:
        worker = get_worker_info()
        mine, num_workers = (worker.id, worker.num_workers) if worker else (0, 1)
        # What it counts in attributes of its own stays as it was made, for the next epoch.
        dataset = copy.copy(self.dataset) if isinstance(self.dataset, Stateful) else self.dataset
        taker = StateTaker()
        micro = 0
        for block in self._blocks(dataset):
            shares = [block] if isinstance(block, Broken) else self._shares(block)
            for share in shares:
                # The DataLoader takes from its workers in turn: micro-step m must come from worker m mod W.
                if micro % num_workers == mine:
                    yield self._with_state(share, block, taker, dataset) if share is shares[-1] else share
                micro += 1

    def _with_state(
        self, share: Fetched | Broken, block: Fetched | Broken, taker: StateTaker, dataset: Any
    ) -> Fetched | Broken:
        """The last micro-batch of a step, with the data set's state after it."""
        if isinstance(share, Broken) or isinstance(block, Broken) or not self.keeps_state:
            return share
        if len(block.samples) < self.global_batch:
            return share  # the stream has ended, and may stand at its beginning again
        state = taker.take(dataset, self.epoch, block.keys[-1][1] + 1)
        return state if isinstance(state, Broken) else replace(share, after=state)

    def _shares(self, block: Fetched) -> list[Fetched | Broken]:
        """This rank's part of one global batch, a list of micro-steps; a last block below N samples is dropped."""
        plan = EpochPlan(len(block.samples), 0, self.global_batch, self.accumulation, self.num_ranks)
        bounds = [plan.share(0, m, self.rank) for m in range(plan.num_micro(0))] if plan.num_steps else []
        return [Fetched(block.keys[low:high], block.samples[low:high]) for low, high in bounds]

    def _blocks(self, dataset: IterableDataset[Any]) -> Iterator[Fetched | Broken]:
        """The stream in global batches from `start` on."""
        keys: list[tuple[int, int]] = []
        samples: list[Any] = []
        for position, item in self._items(dataset):
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

    def _set_up(self, dataset: IterableDataset[Any], begin: StreamState | None) -> None:
        """Have a data set with a state stand where a run was saved, or at its beginning, wherever an earlier epoch left
        it."""
        if not isinstance(dataset, Stateful):
            return
        fresh = self._initial is None
        if self._initial is None:
            self._initial = (copy.deepcopy(dataset.state_dict()),)
        state = begin.state if begin else None if fresh else self._initial[0]
        if state is not None:
            dataset.load_state_dict(copy.deepcopy(state))

    def _begin(self) -> StreamState | None:
        """The saved state, where it is of this epoch and of no later item than the first one wanted."""
        saved = self.resume_from
        return saved if saved is not None and saved.epoch == self.epoch and saved.position <= self.start else None

    def _items(self, dataset: IterableDataset[Any]) -> Iterator[tuple[int, Any]]:
        """The items with their positions, from where the data set's own state lets it begin."""
        outside_worker = get_worker_info() is None
        iterator: Iterator[Any] | None = None
        begin = self._begin() if isinstance(dataset, Stateful) else None
        position = begin.position if begin else 0
        while True:
            with preserved() if outside_worker else _unsplit():
                seed_sample(self.seed, "train", self.epoch, position)
                try:
                    if iterator is None:
                        self._set_up(dataset, begin)
                        iterator = iter(dataset)
                    item = next(iterator)
                except StopIteration:
                    return
                except Exception as error:
                    item = unreadable(error, "train", self.epoch, position)
            yield position, item
            position += 1
