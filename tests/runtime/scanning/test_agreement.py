"""Which builds do not fit to the usual one, and how few samples are read again to know."""

import numpy as np
import pytest

from lockstep.runtime.scanning.agreement import Groups, Odd, disagreements, findings_of
from lockstep.runtime.scanning.build import Build
from lockstep.runtime.scanning.worker import Pair


def of(*shape: int, kind: str = "float32 tensor", name: str = "image") -> Build:
    return Build(((name, kind), ("label", "int")), (shape, None))


def groups(*builds: Build) -> Groups:
    """The first build ten times, each other once, at index 10, 11 ..."""
    first = [(builds[0], np.arange(10))]
    return first + [(build, np.array([10 + i])) for i, build in enumerate(builds[1:])]


class Collate:
    """Answers for pairs of samples, and what it was asked."""

    def __init__(self, bad: set[int]) -> None:
        self.bad, self.asked = bad, list[int]()

    def __call__(self, pairs: list[Pair]) -> dict[Pair, str | None]:
        self.asked += [pair.other for pair in pairs]
        return {pair: "no" if pair.other in self.bad else None for pair in pairs}


def odd(found: Groups, collate: Collate) -> list[Odd]:
    return list(disagreements("train", found, collate))


def test_one_build_is_not_asked_for() -> None:
    collate = Collate({0})
    assert odd(groups(of(3, 4)), collate) == []
    assert odd([], collate) == []
    assert collate.asked == []


def test_lengths_that_collate_takes_are_tried_by_a_few() -> None:
    collate = Collate(set())
    assert odd(groups(of(3, 50), *(of(3, length) for length in range(100, 400))), collate) == []
    assert len(collate.asked) == 8
    assert {10, 309} <= set(collate.asked)  # the shortest and the longest


def test_each_is_tried_where_one_does_not_fit() -> None:
    collate = Collate({309, 12})
    found = odd(groups(of(3, 50), *(of(3, length) for length in range(100, 400))), collate)
    assert sorted(int(one.indices[0]) for one in found if one.text.endswith("no")) == [12, 309]
    assert len(collate.asked) == 8 + 256
    assert all("as others" in one.text for one in found if not one.text.endswith("no"))


def test_the_ways_to_differ_are_judged_apart() -> None:
    collate = Collate({11})
    (one,) = odd(groups(of(3, 50), of(3, 70), of(1, 50)), collate)
    assert (one.kind, one.indices.tolist()) == ("shape", [11])
    assert one.text == "image is 1 x 50, most often 3 x 50; no"


@pytest.mark.parametrize(
    ("build", "kind", "text"),
    [
        (of(3, 4, kind="uint8 tensor"), "dtype", "image is a uint8 tensor, most often a float32 tensor"),
        (of(3, 4, name="picture"), "structure", "lacks image and has picture, which most lack"),
        (Build((("label", "int"),), (None,)), "structure", "lacks image"),
        (Build((("", "NoneType"),), (None,)), "structure", "is a NoneType where most are image, label"),
        (Build((("[0]", "int"), ("[1]", "int")), (None, None)), "structure", "is [0], [1] where most are image, label"),
        (of(3, 4, 5), "shape", "image is 3 x 4 x 5, most often 3 x 4; no"),
        (of(), "shape", "image is a single value, most often 3 x 4; no"),
    ],
)
def test_what_is_said(build: Build, kind: str, text: str) -> None:
    (one,) = odd(groups(of(3, 4), build), Collate({10}))
    assert (one.kind, one.text) == (kind, text)
    assert odd(groups(of(3, 4), build), Collate(set())) == []


def test_a_finding_for_every_sample() -> None:
    one = Odd(np.array([3, 5]), "shape", "wide")
    assert [(f.index, f.where, f.text) for f in findings_of("val", one, str)] == [(3, "3", "wide"), (5, "5", "wide")]
