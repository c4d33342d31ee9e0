import pytest

from lockstep.launch.health.pairs import Pair, judge, measure, ring
from lockstep.runtime.world import World
from tests.ranks import run_ranks


def test_each_direction_once() -> None:
    assert ring(2) == [(0, 1), (1, 0)]
    assert ring(3) == [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1)]
    assert ring(1) == []


def work() -> list[Pair]:
    with World.enter("cpu", threads=1) as world:
        return measure(world, [0, 1, 2], guess=1e6)


def test_all_ranks_know_all_pairs() -> None:
    results = run_ranks(work, 3)
    assert all(result == results[0] for result in results)
    assert sorted((pair.sender, pair.receiver) for pair in results[0]) == sorted(ring(3))
    assert all(pair.bytes_per_s > 0 for pair in results[0])


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ([1e8, 1e8], ""),
        ([1e8, 4e7], "node 1 to node 0 40 MB/s"),
        ([1e8, 1e8, 1e8, 9e7, 3e7, 1.1e8], "node 1 to node 0 30 MB/s"),
        ([1e8, 1e8, 1e8, 1e8, 1e8, 9e8], ""),  # one that is quicker makes the others not slow
    ],
)
def test_a_slow_direction_is_named(speeds: list[float], slow: str) -> None:
    order = ring(2 if len(speeds) == 2 else 3)
    check = judge([Pair(*pair, value) for pair, value in zip(order, speeds, strict=True)])
    assert check.status == ("warn" if slow else "ok")
    assert check.seen.endswith(slow)
