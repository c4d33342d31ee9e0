"""Sizes that a recipe tells: what they must be, and what they decide."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from lockstep.core.errors import UserError
from lockstep.runtime.config import BatchConfig, DataConfig
from lockstep.runtime.data.check import check_shares
from lockstep.runtime.data.sampler import TrainSampler
from lockstep.runtime.data.sizing import Sizing, digest, sized
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.data.sources import Noisy, NoisyStream, Task

TARGETS, PLAIN = BatchConfig(global_targets=64, micro_targets=32), BatchConfig()
BUCKET = DataConfig(bucket=4)


class Sized(Task):
    def __init__(self, sizes: Any) -> None:
        self.given = sizes

    def sizes(self, data: Dataset[Any]) -> Sequence[int] | None:
        found: Sequence[int] | None = self.given
        return found


def refusal(sizes: Any, data: Dataset[Any] | None = None, batch: BatchConfig = TARGETS) -> str:
    with pytest.raises(UserError) as caught:
        Sizing.of(Sized(sizes), data or Noisy(3), batch, DataConfig())
    return str(caught.value)


def test_sizes_are_asked_for_only_where_they_are_needed() -> None:
    assert Sizing.of(Sized("nothing that could be sizes"), Noisy(3), PLAIN, DataConfig()) is None
    sizing = Sizing.of(Sized([5, 0, 7]), Noisy(3), PLAIN, BUCKET)
    assert sizing is not None and sizing.bucket == 4 and sizing.global_targets is None
    assert sizing.sizes.tolist() == [5, 1, 7]  # a sample without a target takes a place all the same


def test_sizes_that_cannot_be_are_refused() -> None:
    assert "batch.global_targets is set, and Sized tells no sizes" in refusal(None)
    assert "gave 2 sizes for 3 samples" in refusal([1, 2])
    assert "sizes of type float64" in refusal([1.0, 2.0, 3.0])
    assert "gave -2 for sample 1" in refusal([1, -2, 3])
    assert "shape (3, 1)" in refusal([[1], [2], [3]])
    assert "lists of different lengths" in refusal([[1], [2, 3], [4]])
    assert "for sample 2" in refusal(np.array([1, 2, 2**63 + 5], dtype=np.uint64))
    assert "for a stream" in refusal([1, 2, 3], NoisyStream(3))
    with pytest.raises(UserError, match=r"data\.bucket is set, and Task tells no sizes"):
        Sizing.of(Task(), Noisy(3), PLAIN, BUCKET)


def samplers(ranks: int, sizing: Sizing, shuffle: bool = True) -> list[TrainSampler]:
    return [TrainSampler(len(sizing.sizes), 8, 1, 0, rank, ranks, shuffle, sizing) for rank in range(ranks)]


def read(sampler: TrainSampler, epoch: int = 0, start: int = 0) -> list[list[int]]:
    sampler.epoch, sampler.start = epoch, start
    batches = [[index for _, index in keys] for keys in sampler]
    assert len(batches) == len(sampler)
    return batches


@pytest.mark.parametrize("bucket", [None, 4])
@pytest.mark.parametrize("targets", [None, 100])
def test_ranks_read_every_sample_once_in_every_epoch(bucket: int | None, targets: int | None) -> None:
    sizing = Sizing(np.arange(50) % 19 + 1, targets, 40 if targets else None, bucket)
    for ranks in (1, 2, 3):
        for epoch in (0, 1):
            whole = [read(sampler, epoch) for sampler in samplers(ranks, sizing)]
            assert len({len(one) for one in whole}) == 1
            plan = samplers(ranks, sizing)[0].plan
            count = sum(len(batch) for one in whole for batch in one)
            assert len({index for one in whole for batch in one for index in batch}) == count
            assert 50 - count < max(plan.num_ranks, 1)


def test_the_order_depends_on_sizes_only_with_buckets() -> None:
    one, other = np.arange(50) % 19 + 1, np.arange(50)[::-1] % 19 + 1
    orders = [samplers(1, Sizing(sizes, 100, None, None))[0].order(0).tolist() for sizes in (one, other)]
    assert orders[0] == orders[1]
    assert samplers(1, Sizing(one, 100, None, 4))[0].order(0).tolist() != orders[0]


def test_a_signature_tells_what_an_order_depends_on() -> None:
    sizes = np.arange(50) % 19 + 1
    plain = samplers(1, Sizing(sizes, 100))[0].signature
    assert (
        plain == samplers(2, Sizing(sizes[::-1].copy(), 64, 32))[1].signature == "50 samples, seed=0, data.shuffle=true"
    )
    like = samplers(1, Sizing(sizes, 100, None, 4))[0].signature
    assert like == f"{plain}, data.bucket=4, sizes {digest(sizes)}"
    assert len({like, plain, samplers(1, Sizing(sizes + 1, 100, None, 4))[0].signature}) == 3


def test_steps_of_many_epochs_are_counted_and_beyond_a_budget_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = samplers(2, Sizing(np.arange(50) % 19 + 1, 100, 40, 4))[0]
    each = []
    for epoch in range(12):
        sampler.epoch = epoch
        each.append(sampler.plan.num_steps)
    assert sampler.num_steps(12) == sum(each)
    assert sampler.num_steps(12, num_ranks=1) >= sum(each)
    monkeypatch.setattr("lockstep.runtime.data.sampler.COUNTED", 100)
    assert sampler.num_steps(12) == round(sum(each[:2]) / 2 * 12)


def checked(cases: dict[str, list[list[int]]]) -> dict[str, str]:
    found = {}
    with World.enter(threads=1) as world:
        for name, by_rank in cases.items():
            sizing = Sizing(np.array(by_rank[world.rank]), 64, 32)
            try:
                found[name] = check_shares(samplers(world.num_ranks, sizing)[world.rank], world)
            except UserError as error:
                found[name] = str(error)
    return found


def test_all_ranks_are_told_of_a_sample_that_is_too_large_and_of_sizes_that_differ() -> None:
    some = [3, 9, 30, 4] * 5
    cases = {
        "right": [some, some],
        "differ": [some, some[::-1]],
        "forward": [[*some, 33]] * 2,
        "short": [some, some[1:]],
    }
    ranks = run_ranks(checked, 2, cases)
    assert ranks[0] == ranks[1]
    found = ranks[0]
    assert "shares are disjoint and complete" in found["right"]
    assert "sizes(data) differs between the ranks" in found["differ"]
    assert "sample 20 has 33 targets, and batch.micro_targets is 32" in found["forward"]
    assert "20 samples on rank 0, 19 samples on rank 1" in found["short"]


def test_a_step_holds_the_largest_sample_once_for_each_rank() -> None:
    class Four:
        num_ranks = 4

        def gather(self, value: Any) -> list[Any]:
            return [value] * 4

    with pytest.raises(UserError, match=r"(?s)sample 2 has 30 targets.*batch.global_targets=64 is for 4 ranks.*=120"):
        Sizing(np.array([3, 9, 30]), 64).check(Four())  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "words"), [(-5, "raised ValueError"), ("x", "raised TypeError"), (0, "empty")])
def test_a_length_that_cannot_be(length: object, words: str) -> None:
    class Wrong(Dataset[int]):
        def __len__(self) -> int:
            return length  # type: ignore[return-value]  # on purpose

    with pytest.raises(UserError, match=words):
        sized(Wrong(), "train_data")
    with pytest.raises(UserError, match="int without a length"):
        sized(5, "train_data")  # type: ignore[arg-type]  # on purpose
