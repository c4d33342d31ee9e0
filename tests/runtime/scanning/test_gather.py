"""What is kept of each split."""

import numpy as np

from lockstep.runtime.scanning.build import Build
from lockstep.runtime.scanning.gather import Seen, repeats, shared
from lockstep.runtime.scanning.read import Read

SMALL, LARGE = (Build((("", "float32 tensor"),), ((side,),)) for side in (2, 9))


def block(
    indices: list[int],
    builds: list[int],
    new: list[Build],
    names: list[int] | None = None,
    counts: list[int] | None = None,
) -> Read:
    return Read(
        "train",
        np.array(indices, np.int64),
        np.array(builds, np.int32),
        np.array(indices, np.int64) + 100,
        np.array(names or [], np.uint64),
        new,
        [],
        counts=None if counts is None else np.array(counts),
        done=len(indices),
    )


def test_two_workers_that_number_builds_in_their_own_way() -> None:
    seen = Seen("train")
    one: list[int] = []
    other: list[int] = []
    seen.add(block([4, 5], [0, 1], [SMALL, LARGE], counts=[1, 0]), one)
    seen.add(block([0, 1], [0, 0], [LARGE], counts=[1, 1, 1]), other)
    seen.add(block([2], [1], []), one)
    table = seen.table()
    assert table.indices.tolist() == [0, 1, 2, 4, 5]
    assert table.sizes.tolist() == [100, 101, 102, 104, 105]
    assert [(build, indices.tolist()) for build, indices in table.by_build()] == [(LARGE, [0, 1, 2, 5]), (SMALL, [4])]
    assert seen.counts is not None
    assert (seen.done, seen.counts.tolist()) == (5, [2, 1, 1])


def test_at_a_tie_the_build_met_first_is_the_usual_one() -> None:
    seen = Seen("train")
    seen.add(block([0, 1, 2, 3], [0, 1, 1, 0], [LARGE, SMALL]), [])
    assert next(iter(seen.table().by_build()))[0] == LARGE


def test_nothing_read() -> None:
    table = Seen("train").table()
    assert table.by_build() == []
    assert list(repeats(table)) == []


def test_the_same_files_in_a_split_and_in_two() -> None:
    train, val = Seen("train"), Seen("val")
    train.add(block([3, 4, 5], [0, 0, 0], [SMALL], names=[7, 8, 7]), [])
    train.add(block([0, 1], [0, 0], [SMALL], names=[7, 9]), [])
    val.add(block([0, 1], [0, 0], [SMALL], names=[5, 8]), [])
    assert list(repeats(train.table())) == [(3, 0), (5, 0)]
    assert list(shared(train.table(), val.table())) == [(4, 1)]


def test_many_blocks_of_one_sample_take_little_memory() -> None:
    seen, known = Seen("train"), list[int]()
    for index in range(3000):
        seen.add(block([index], [0], [] if known else [SMALL], names=[index]), known)
    assert len(seen._parts) <= 13
    assert seen.table().indices.tolist() == list(range(3000))
    assert seen.table().names.tolist() == list(range(3000))
