"""The start-up check: it tells what each rank reads, and refuses shares that overlap, miss or differ."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from lockstep.core.errors import LockstepError, RunError, UserError
from lockstep.runtime.data.check import _compare, check_lengths, check_shares, mixed, share_of
from lockstep.runtime.data.order import EpochPlan
from lockstep.runtime.data.sampler import TrainSampler
from lockstep.runtime.world import World
from tests.ranks import run_ranks


def samplers(length: int, batch: int, ranks: int, accumulation: int = 1) -> list[TrainSampler]:
    return [TrainSampler(length, batch, accumulation, 0, rank, ranks) for rank in range(ranks)]


@pytest.mark.parametrize(("length", "batch", "ranks", "accumulation"), [(17, 4, 2, 2), (50, 16, 3, 1), (9, 4, 4, 1)])
def test_the_share_is_what_the_sampler_reads(length: int, batch: int, ranks: int, accumulation: int) -> None:
    for sampler in samplers(length, batch, ranks, accumulation):
        for start in (0, batch):
            sampler.start = start
            read = [index for keys in sampler for _, index in keys]
            share = share_of(sampler)
            assert (share.length, share.count, share.first) == (length, len(read), read[:4])
            assert share.digest == mixed(np.array(read, dtype=np.int64))


def test_a_digest_tells_sets_apart_and_not_orders() -> None:
    def digest(*values: int) -> int:
        return mixed(np.array(values, dtype=np.int64))

    assert digest(1, 2, 3) == digest(3, 1, 2)
    assert len({digest(1, 5), digest(2, 4), digest(3, 3), digest(6), digest(0, 6), digest()}) == 6
    assert digest(0) != 0
    assert (digest(1, 2) + digest(3)) % 2**64 == digest(1, 2, 3)
    assert digest() == 0


class Overlaps(EpochPlan):
    """Every rank reads the same part."""

    def share(self, step: int, micro: int, rank: int) -> tuple[int, int]:
        return super().share(step, micro, 0)


class Wrong(TrainSampler):
    @property
    def plan(self) -> EpochPlan:
        return Overlaps(self.length, self.start, self.global_batch, self.accumulation, self.num_ranks)


def test_shares_that_overlap_are_refused() -> None:
    wrong = [Wrong(16, 4, 1, 0, rank, 2) for rank in range(2)]
    shares = [share_of(sampler) for sampler in wrong]
    assert sum(share.count for share in shares) == 16  # as many as there are, and not each once
    with pytest.raises(RunError, match=r"(?s)the ranks read 16 samples of 16, and not each once.*rank 0: 8, rank 1: 8"):
        _compare(shares, wrong[0].plan, wrong[0])


def test_a_share_that_misses_a_sample_is_refused() -> None:
    right = samplers(16, 4, 2)
    shares = [share_of(right[0]), share_of(right[0])]
    with pytest.raises(RunError, match="disjoint and complete"):
        _compare(shares, right[0].plan, right[0])


def checked(cases: dict[str, tuple[list[int], int]]) -> dict[str, str]:
    found = {}
    with World.enter(threads=1) as world:
        for name, (lengths, batch) in cases.items():
            sampler = TrainSampler(lengths[world.rank], batch, 1, 0, world.rank, world.num_ranks)
            try:
                found[name] = check_shares(sampler, world)
            except LockstepError as error:
                found[name] = f"{type(error).__name__}: {error}"
    return found


def test_all_ranks_say_the_same_of_their_data() -> None:
    cases: dict[str, Any] = {
        "right": ([52, 52, 52], 16),
        "tail": ([50, 50, 50], 16),
        "differ": ([52, 52, 51], 16),
        "too few": ([2, 2, 2], 4),
    }
    ranks = run_ranks(checked, 3, cases)
    assert ranks[0] == ranks[1] == ranks[2]
    found = ranks[0]
    assert re.match(r"data: 52 samples, rank 0 17 \(first \d+, .*rank 1 17 .*rank 2 18 ", found["right"])
    assert found["right"].endswith("shares are disjoint and complete")
    assert "left out at the end, fewer than the ranks: 2" in found["tail"]
    assert found["differ"].startswith(UserError.__name__)
    assert "52 samples on rank 0, 52 samples on rank 1, 51 samples on rank 2" in found["differ"]
    assert "2 training samples for 3 ranks" in found["too few"]
    assert "lower --nproc" in found["too few"]


def test_many_ranks_are_not_all_listed() -> None:
    made = samplers(64, 16, 8)

    class Eight:
        num_ranks = 8

        def gather(self, share: Any) -> list[Any]:
            return [share_of(sampler) for sampler in made]

    line = check_shares(made[0], Eight())  # type: ignore[arg-type]
    assert "rank 3 8 (first " in line
    assert "rank 4" not in line
    assert "and 4 more ranks" in line


def validated(lengths: list[int]) -> str:
    with World.enter(threads=1) as world:
        try:
            check_lengths(TensorDataset(torch.zeros(lengths[world.rank])), world)
        except UserError as error:
            return str(error)
    return ""


def test_validation_sets_of_different_length_are_refused_on_every_rank() -> None:
    refused = run_ranks(validated, 2, [10, 9])
    assert refused[0] == refused[1]
    assert "the validation set has 10 samples on rank 0, 9 samples on rank 1" in refused[0]
    assert run_ranks(validated, 2, [10, 10]) == ["", ""]
