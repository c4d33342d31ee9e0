"""A block as it is sent."""

import pickle

from lockstep.runtime.scanning.read import Gathering


def test_a_block_is_small_and_typed() -> None:
    gathering = Gathering()
    for index in range(1000):
        gathering.indices.append(index)
        gathering.builds.append(0)
        gathering.sizes.append(10**12)
        gathering.names.append(2**64 - 1)
    read = gathering.read("train", 1001, True, 0.5)
    assert (read.split, read.done, read.ended, read.seconds, read.counts) == ("train", 1001, True, 0.5, None)
    assert int(read.names[-1]) == 2**64 - 1
    assert int(read.sizes.sum()) == 10**15
    assert len(pickle.dumps(read)) < 30_000
    assert Gathering().read("val", 0, False, 0.0).indices.tolist() == []
