from typing import Any

import pytest

from lockstep.rules import whole_epoch
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import FIRST, SECOND, loader, plain, reading


def two(ids: tuple[tuple[int, ...], tuple[int, ...]], **fields: Any) -> Trace:
    sides = []
    for rank in (0, 1):
        of = loader(0, rank, **fields)
        sides.append([of, *reading(of, ids[rank])])
    return trace(*sides)


def test_divided_by_hand_and_by_the_sampler() -> None:
    parts = [loader(0, rank, length=8, split=f"part {rank}") for rank in (0, 1)]
    sides = [[part, *reading(part, ids[:4])] for part, ids in zip(parts, (FIRST, SECOND), strict=True)]
    (finding,) = whole_epoch.dynamic(trace(*sides))
    assert "8 of 16 samples were read by no rank: each rank divides a part that is already its own" in finding.seen
    assert finding.witnesses[0].text == "rank 0 read 4 of 8: 8, 2, 14, 5"


def test_the_same_with_a_dataset_of_ones_own() -> None:
    """Indices run from 0 on both ranks; what the samples hold tells that they are others."""
    of = [loader(0, rank, length=8, root_length=8, stream="Points/8/8#0") for rank in (0, 1)]
    sides = [
        [
            of[rank],
            *reading(of[rank], (0, 2, 4, 6), content="ab"[rank]),
            *reading(of[rank], (1, 0, 5, 4), 1, content="ab"[rank]),
        ]
        for rank in (0, 1)
    ]
    (finding,) = whole_epoch.dynamic(trace(*sides))
    assert "8 of 16 samples" in finding.seen


def test_shares_that_do_not_cover_the_data() -> None:
    (finding,) = whole_epoch.dynamic(two((FIRST[:4], SECOND[:4])))
    assert "8 of 16 samples were read by no rank: the shares do not cover the data" in finding.seen


@pytest.mark.parametrize(
    ("ids", "fields"),
    [
        ((FIRST, SECOND), {}),
        ((FIRST[:7], SECOND[:7]), {"drop_last": True}),
        ((FIRST[:4], SECOND[:4]), {"sampler_ranks": None, "sampler": "SubsetRandomSampler"}),
        ((FIRST[:3] + FIRST[:3], SECOND[:3] + SECOND[:3]), {}),  # drawn with replacement
        ((FIRST, FIRST[4:] + SECOND[:4]), {}),  # different permutations: another rule's
    ],
)
def test_left_alone(ids: Any, fields: dict[str, Any]) -> None:
    assert not list(whole_epoch.dynamic(two(ids, **fields)))


def test_a_pass_that_did_not_end_is_left_alone() -> None:
    sides = [[loader(0, rank), *reading(loader(0, rank), (FIRST, SECOND)[rank][:4], ended=False)] for rank in (0, 1)]
    assert not list(whole_epoch.dynamic(trace(*sides)))
    whole = [plain(), *reading(plain(), FIRST + SECOND)]
    assert not list(whole_epoch.dynamic(trace(whole, whole)))
