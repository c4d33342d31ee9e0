"""Shared streams agree, rank streams differ, sample streams follow the sample; nothing else moves."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lockstep.runtime.streams import (
    preserved,
    seed_everything,
    seed_of,
    seed_rank_step,
    seed_sample,
    shared_stream,
)
from lockstep.runtime.world import World
from tests.ranks import run_ranks

Draw = tuple[float, float, float]


def draw() -> Draw:
    """One number of each global generator."""
    return float(torch.rand(())), float(np.random.rand()), random.random()


def drawn_after(seed: Callable[[], None]) -> Draw:
    with preserved():
        seed()
        return draw()


def distinct(draws: list[Draw]) -> bool:
    """No two of them share a number of any generator."""
    return all(len(set(numbers)) == len(draws) for numbers in zip(*draws, strict=True))


def test_a_seed_depends_on_every_name_and_its_place() -> None:
    names: list[tuple[int | str, ...]] = [
        (0, "rank", 0, 1),
        (0, "rank", 1, 0),
        (1, "rank", 0, 0),
        (0, "shared", 0, 1),
        (0, "rank", 0),
        (0, "rank", 0, 1, 0),
        (0, "rank", 10, 1),
        (0, "rank", 1, 10),
        (0, "rank", 11, 0),
    ]
    seeds = [seed_of(*one) for one in names]
    assert len(set(seeds)) == len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seeds == [seed_of(*one) for one in names]


def test_a_seed_is_the_same_in_every_version() -> None:
    """Runs made with an older version go on with the same numbers."""
    assert seed_of(0, "order", 0) == 3471081512423777433


def test_seeds_do_not_collide() -> None:
    assert len({seed_of(0, "train", epoch, index) for epoch in range(10) for index in range(3000)}) == 30_000


def test_each_rank_and_step_has_numbers_of_its_own() -> None:
    assert distinct([drawn_after(lambda r=r, s=s: seed_rank_step(3, r, s)) for r in range(4) for s in range(4)])
    assert drawn_after(lambda: seed_rank_step(3, 1, 2)) == drawn_after(lambda: seed_rank_step(3, 1, 2))


def test_each_sample_of_each_epoch_and_stream_has_numbers_of_its_own() -> None:
    kinds = [("train", e, i) for e in range(3) for i in range(3)] + [("val", 0, i) for i in range(3)]
    assert distinct([drawn_after(lambda k=k: seed_sample(3, *k)) for k in kinds])
    assert drawn_after(lambda: seed_sample(3, "train", 1, 2)) != drawn_after(lambda: seed_sample(4, "train", 1, 2))


@pytest.mark.parametrize("seed", [0, 2**63 - 1, 2**32])
def test_any_seed_is_taken(seed: int) -> None:
    assert drawn_after(lambda: seed_everything(seed)) == drawn_after(lambda: seed_everything(seed))


def test_a_block_gives_the_global_states_back() -> None:
    with preserved():
        seed_everything(1)
        expected = [draw(), draw(), draw()]
        seed_everything(1)
        found = [draw()]
        with preserved():
            seed_everything(2)
            draw()
        found.append(draw())
        with pytest.raises(ZeroDivisionError), shared_stream(5, "x"):
            draw()
            raise ZeroDivisionError
        found.append(draw())
    assert found == expected


def test_a_shared_stream_depends_on_seed_and_purpose_alone() -> None:
    found = []
    for seed, purpose, before in ((0, "model", 1), (0, "model", 2), (0, "split", 1), (1, "model", 1)):
        with preserved():
            seed_everything(before)
            with shared_stream(seed, purpose):
                found.append(draw())
    assert found[0] == found[1]
    assert distinct(found[1:])


def streams() -> tuple[Draw, Draw, Draw]:
    with World.enter(threads=1) as world:
        torch.manual_seed(world.rank)
        with shared_stream(0, "model"):
            shared = draw()
        seed_sample(0, "train", 1, 7)
        sample = draw()
        seed_rank_step(0, world.rank, 4)
        return shared, sample, draw()


def test_ranks_agree_where_they_share_and_differ_where_they_must() -> None:
    ranks = run_ranks(streams, 3)
    shared, sample, own = zip(*ranks, strict=True)
    assert len(set(shared)) == 1
    assert len(set(sample)) == 1
    assert distinct(list(own))
