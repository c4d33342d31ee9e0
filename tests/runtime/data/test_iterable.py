"""A stream is split by rank and worker, so that every N has the same global batches in the same order."""

import itertools
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from lockstep.core.errors import RunError
from lockstep.runtime.data.broken import Broken
from lockstep.runtime.data.iterable import SplitStream
from lockstep.runtime.data.loader import Reading, TrainLoader
from tests.runtime.data.sources import NoisyStream, Task, world_of

Micro = list[int]


def dealt(stream: IterableDataset[Any], batch: int, accumulation: int, ranks: int, start: int = 0) -> list[list[Micro]]:
    """Indices by rank and micro-step."""
    found = []
    for rank in range(ranks):
        split = SplitStream(stream, batch, accumulation, 0, rank, ranks)
        split.epoch, split.start = 1, start
        fetched = list(split)
        assert not any(isinstance(one, Broken) for one in fetched)
        found.append([[int(sample["index"]) for sample in one.samples] for one in fetched])  # type: ignore[union-attr]
    return found


CASES = [
    case
    for case in itertools.product((0, 1, 5, 16, 17, 30), (1, 4, 5, 8), (1, 2, 4), (1, 2, 3, 4))
    if case[1] >= case[2] * case[3]
]


def test_shares_are_disjoint_and_complete_and_none_is_empty() -> None:
    for length, batch, accumulation, ranks in CASES:
        by_rank = dealt(NoisyStream(length), batch, accumulation, ranks)
        assert len({len(one) for one in by_rank}) == 1
        assert all(share for one in by_rank for share in one)
        dropped = length % batch if length % batch < ranks else 0
        read = sorted(index for one in by_rank for share in one for index in share)
        assert read == list(range(length - dropped))


def test_a_step_of_full_size_has_all_its_micro_steps_at_every_n() -> None:
    """The loop takes `accumulation` micro-batches a step: one less would mix two global batches."""
    for length, batch, accumulation, ranks in CASES:
        by_rank = dealt(NoisyStream(length), batch, accumulation, ranks)
        for step in range(length // batch):
            taken = [share for one in by_rank for share in one[step * accumulation : (step + 1) * accumulation]]
            assert sorted(chain.from_iterable(taken)) == list(range(step * batch, (step + 1) * batch))


def test_started_anywhere_what_is_left_is_read() -> None:
    for batch, ranks, start in itertools.product((4, 8), (1, 2, 3), (0, 4, 8, 16, 23, 24)):
        by_rank = dealt(NoisyStream(23), batch, 1, ranks, start)
        left = max(0, 23 - start)
        dropped = left % batch if left % batch < ranks else 0
        read = sorted(index for one in by_rank for share in one for index in share)
        assert read == list(range(min(start, 23), 23 - dropped))


def samples_of(ranks: int, workers: int, epoch: int, start: int = 0, shuffled: bool = True) -> dict[int, list[float]]:
    """What each item was read as, by index, through real loaders."""
    found: dict[int, list[float]] = {}
    for rank in range(ranks):
        stream = NoisyStream(22, shuffled=shuffled)
        loader = TrainLoader(stream, Task(), Reading(workers, seed=3), world_of(rank, ranks), 6, 2)
        for batch in loader.epoch(epoch, start):
            found |= dict(zip(batch["index"].tolist(), batch["draws"].tolist(), strict=True))
    return found


def test_items_are_the_same_at_every_n_with_every_number_of_workers_and_after_a_resume() -> None:
    whole = samples_of(1, 0, 1)
    assert len(whole) == 22
    assert samples_of(2, 0, 1) == whole
    assert samples_of(1, 2, 1) == whole
    assert samples_of(2, 2, 1) == whole
    rest = samples_of(2, 1, 1, start=12)
    assert rest.items() <= whole.items()
    assert len(rest) == 10
    other = samples_of(1, 0, 2)
    assert list(other) != list(whole)
    assert not {tuple(draws) for draws in other.values()} & {tuple(draws) for draws in whole.values()}


def test_workers_keep_the_order_of_the_micro_steps() -> None:
    orders = []
    for workers in (0, 1, 2):
        loader = TrainLoader(NoisyStream(22), Task(), Reading(workers), world_of(0, 1), 6, 2)
        orders.append([batch["index"].tolist() for batch in loader.epoch(0)])
    assert orders[0] == orders[1] == orders[2]
    assert list(chain.from_iterable(orders[0])) == list(range(22))


def test_every_epoch_is_a_new_reading_of_the_stream() -> None:
    loader = TrainLoader(NoisyStream(10, shuffled=True), Task(), Reading(2), world_of(0, 1), 5, 1)
    epochs = [[batch["index"].tolist() for batch in loader.epoch(epoch)] for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] != epochs[1]


def test_reading_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    dealt(NoisyStream(9, shuffled=True), 3, 1, 1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_item_that_raises_is_named_on_every_rank(workers: int) -> None:
    for rank in range(2):
        loader = TrainLoader(NoisyStream(20, raises=9), Task(), Reading(workers), world_of(rank, 2), 4, 1)
        batches = []
        with pytest.raises(RunError) as caught:
            for batch in loader.epoch(2):
                batches.append(batch)
        assert len(batches) == 2
        assert f"rank {rank}: reading train sample 9 raised OSError" in str(caught.value)
        assert "epoch 2" in str(caught.value)


class Countdown(IterableDataset[Any]):
    """An iterator that is false when it is empty."""

    def __iter__(self) -> Iterator[Any]:
        return Left(5)  # type: ignore[return-value]


class Left:
    def __init__(self, left: int) -> None:
        self.left = left

    def __len__(self) -> int:
        return self.left

    def __next__(self) -> dict[str, Any]:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return {"index": 5 - self.left - 1}


def test_an_iterator_with_a_length_is_read_once() -> None:
    assert dealt(Countdown(), 2, 1, 1) == [[[0, 1], [2, 3], [4]]]


class SplitsItself(NoisyStream):
    """Gives each worker a part, as torch's documentation does it and the streams of Hugging Face do."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return itertools.islice(super().__iter__(), first, None, step)


def test_a_stream_that_splits_itself_among_workers_is_read_whole_all_the_same() -> None:
    loader = TrainLoader(SplitsItself(22), Task(), Reading(2), world_of(0, 1), 6, 2)
    assert list(chain.from_iterable(batch["index"].tolist() for batch in loader.epoch(0))) == list(range(22))


class Unopened(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise FileNotFoundError("shard-0.tar")


def test_a_stream_that_does_not_open_is_told() -> None:
    (broken,) = SplitStream(Unopened(), 4, 1, 0, 0, 1)
    assert isinstance(broken, Broken)
    assert "raised FileNotFoundError: shard-0.tar" in broken.message
