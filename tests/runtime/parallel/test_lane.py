"""Numbers that travel with the gradients come back exact."""

import pytest
import torch

from lockstep.runtime.parallel.lane import BITS, LARGEST, SIZE, decode, encode

LIKE = torch.zeros(SIZE)


def mean_of(flags: list[bool], counts: list[int]) -> list[float]:
    """What the wrapper's average over the ranks gives, in float32."""
    total = torch.zeros(SIZE)
    for flag, count in zip(flags, counts, strict=True):
        total += encode(flag, count, LIKE) / len(flags)
    return total.tolist()


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 7, 64, 1000])
def test_counts_come_back_exact(num_ranks: int) -> None:
    generator = torch.Generator().manual_seed(num_ranks)
    counts = torch.randint(0, LARGEST + 1, (num_ranks,), generator=generator).tolist()
    assert decode(mean_of([False] * num_ranks, counts), num_ranks) == (False, sum(counts), False)


@pytest.mark.parametrize("count", [0, 1, 2**BITS - 1, 2**BITS, 2**20 - 1, 2**20, LARGEST])
def test_the_edges_of_the_limbs(count: int) -> None:
    assert decode(encode(False, count, LIKE).tolist(), 1) == (False, count, False)
    assert torch.equal(encode(False, torch.tensor(count), LIKE), encode(False, count, LIKE))


@pytest.mark.parametrize("num_ranks", [1, 3, 1000])
def test_one_flag_is_seen_by_all(num_ranks: int) -> None:
    flags = [rank == num_ranks - 1 for rank in range(num_ranks)]
    assert decode(mean_of(flags, [5] * num_ranks), num_ranks) == (True, 5 * num_ranks, False)


def test_a_count_of_bools_and_small_types() -> None:
    assert decode(encode(False, torch.ones(7, dtype=torch.bool).sum(), LIKE).tolist(), 1) == (False, 7, False)
    assert decode(encode(True, torch.tensor(9, dtype=torch.int32), LIKE).tolist(), 1) == (True, 9, False)


@pytest.mark.parametrize("num_ranks", [1, 3, 1000])
def test_one_wish_to_stop_is_seen_by_all_and_disturbs_nothing(num_ranks: int) -> None:
    total = torch.zeros(SIZE)
    for rank in range(num_ranks):
        total += encode(False, torch.tensor(rank), LIKE, stop=rank == num_ranks - 1) / num_ranks
    assert decode(total.tolist(), num_ranks) == (False, sum(range(num_ranks)), True)
