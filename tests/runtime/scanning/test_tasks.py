"""What is handed out, and again after a worker was lost."""

import numpy as np

from lockstep.runtime.scanning.read import Read
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.tasks import Backlog
from lockstep.runtime.scanning.worker import Block


def backlog(length: int | None, workers: int = 2) -> Backlog:
    return Backlog(Source("train", None, length), workers)


def read(block: Block, seconds: float = 0.001, ended: bool = False) -> Read:
    nothing = np.array([], np.int64)
    done = len(block.indices)
    return Read(
        "train",
        nothing,
        nothing.astype(np.int32),
        nothing,
        nothing.astype(np.uint64),
        [],
        [],
        done=done,
        ended=ended,
        seconds=seconds,
    )


def drain(one: Backlog, seconds: float) -> list[Block]:
    blocks = []
    while (block := one.take(0)) is not None:
        blocks.append(block)
        one.came(read(block, seconds * len(block.indices)))
    return blocks


def test_every_sample_is_handed_out_once() -> None:
    for length in (0, 1, 7, 5000):
        one = backlog(length)
        assert [index for block in drain(one, 1e-5) for index in block.indices] == list(range(length))
        assert one.over


def test_blocks_suit_the_speed_and_are_small_at_the_end() -> None:
    fast = [len(block.indices) for block in drain(backlog(100_000), 1e-6)]
    slow = [len(block.indices) for block in drain(backlog(1000), 0.5)]
    assert max(fast) == 1024
    assert fast[-1] == 1
    assert set(slow[1:]) == {1}


def test_a_lost_sample_is_tried_again_alone_and_the_rest_as_it_was() -> None:
    one = backlog(4, workers=1)
    block = one.take(0)
    assert block is not None
    assert list(block.indices) == [0, 1]
    one.lost(block, at=1, several=False, again=True)
    assert not one.over
    again = [one.take(0), one.take(0)]
    assert [(list(b.indices), b.one_by_one) for b in again if b] == [([0], False), ([1], True)]


def test_a_batch_that_ended_a_worker_is_read_one_by_one() -> None:
    one = backlog(8, workers=1)
    block = one.take(0)
    assert block is not None
    one.lost(block, at=None, several=True, again=True)
    assert one.take(0) == Block("train", block.indices, one_by_one=True)


def test_a_stream_is_one_workers_and_ends_where_it_was_lost() -> None:
    one = backlog(None)
    block = one.take(1)
    assert block is not None
    assert one.take(0) is None
    one.lost(block, at=2, several=False, again=True)
    rest = one.take(1)
    assert rest is not None
    assert list(rest.indices) == [0]  # what came before it was told by none; halves, as of any block
    other = one.take(1)
    assert other is not None
    assert list(other.indices) == [1]
    assert one.take(1) is None
    one.came(read(rest))
    assert not one.over
    one.came(read(other))
    assert one.over


def test_a_stream_goes_on_until_it_ends() -> None:
    one = backlog(None)
    first = one.take(0)
    assert first is not None
    one.came(read(first))
    second = one.take(0)
    assert second is not None
    assert second.indices[0] == len(first.indices)
    one.came(read(second, ended=True))
    assert one.over
