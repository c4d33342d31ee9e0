"""Samplers yield each index once, in the epoch's order, from the position that is set."""

import itertools
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lockstep.runtime.data.order import order
from lockstep.runtime.data.sampler import EvalSampler, TrainSampler


def dealt(length: int, batch: int, accumulation: int, ranks: int, epoch: int, start: int) -> list[list[list[int]]]:
    """Indices by rank and micro-batch."""
    found = []
    for rank in range(ranks):
        sampler = TrainSampler(length, batch, accumulation, 5, rank, ranks)
        sampler.epoch, sampler.start = epoch, start
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert {e for keys in batches for e, _ in keys} <= {epoch}
        found.append([[index for _, index in keys] for keys in batches])
    return found


CASES = [
    (length, batch, accumulation, ranks)
    for length, batch, accumulation, ranks in itertools.product((16, 17, 23), (6, 8), (1, 2), (1, 2, 3))
]


@pytest.mark.parametrize(("length", "batch", "accumulation", "ranks"), CASES)
def test_the_ranks_read_the_order_once_and_take_as_many_micro_steps(
    length: int, batch: int, accumulation: int, ranks: int
) -> None:
    for epoch, start in ((0, 0), (1, 0), (1, batch), (2, 2 * batch)):
        ranks_read = dealt(length, batch, accumulation, ranks, epoch, start)
        assert len({len(batches) for batches in ranks_read}) == 1  # nobody waits for a step that another has not
        read = sorted(index for batches in ranks_read for indices in batches for index in indices)
        dropped = (length - start) % batch if (length - start) % batch < ranks else 0
        assert read == sorted(order(length, 5, epoch)[start : length - dropped].tolist())


def test_one_rank_reads_the_order_itself() -> None:
    (batches,) = dealt(20, 6, 2, 1, 3, 0)
    assert [index for indices in batches for index in indices] == order(20, 5, 3).tolist()


def test_any_rank_can_tell_what_another_one_reads() -> None:
    samplers = [TrainSampler(20, 8, 2, 0, rank, 3) for rank in range(3)]
    for rank in range(3):
        own = samplers[rank].keys(1, 1)
        assert own == samplers[0].keys(1, 1, rank)
        assert own


def test_without_shuffling_the_order_is_that_of_the_data_set() -> None:
    sampler = TrainSampler(7, 4, 1, 0, 0, 1, shuffle=False)
    assert list(sampler) == [[(0, 0), (0, 1), (0, 2), (0, 3)], [(0, 4), (0, 5), (0, 6)]]


def test_iterating_twice_gives_the_same_and_leaves_no_mark() -> None:
    sampler = TrainSampler(17, 4, 2, 0, 1, 2)
    once = list(sampler)
    assert list(sampler) == once
    assert (sampler.epoch, sampler.start) == (0, 0)
    assert list(pickle.loads(pickle.dumps(sampler))) == once


def test_it_is_a_batch_sampler_for_an_ordinary_loader() -> None:
    class ByKey(TensorDataset):
        def __getitem__(self, key: tuple[int, int]) -> torch.Tensor:  # type: ignore[override]
            return self.tensors[0][key[1]]

    sampler = TrainSampler(10, 4, 1, 0, 0, 2)
    loader = DataLoader(ByKey(torch.arange(10)), batch_sampler=sampler)
    assert [batch.tolist() for batch in loader] == [[index for _, index in keys] for keys in sampler]
    assert len(loader) == len(sampler)


@pytest.mark.parametrize("length", [1, 3, 8, 50])
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_evaluation_deals_whole_batches_and_repeats_nothing(length: int, batch: int, ranks: int) -> None:
    samplers = [EvalSampler(length, batch, rank, ranks) for rank in range(ranks)]
    by_number: dict[int, list[int]] = {}
    for rank, sampler in enumerate(samplers):
        assert len(sampler) == len(list(sampler)) == len(sampler.batches)
        for number, keys in zip(sampler.batches, sampler, strict=True):
            assert number % ranks == rank
            by_number[number] = [index for _, index in keys]
    alone = [[index for _, index in keys] for keys in EvalSampler(length, batch, 0, 1)]
    assert [by_number[number] for number in sorted(by_number)] == alone
    assert list(itertools.chain.from_iterable(alone)) == list(range(length))
