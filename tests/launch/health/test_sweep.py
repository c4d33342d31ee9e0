from lockstep.launch.health.sweep import Row, compute_s, measure
from lockstep.runtime.world import World
from tests.ranks import run_ranks


def work(budget_s: float) -> tuple[list[Row], float]:
    with World.enter("cpu", threads=1) as world:
        return measure(world, (4096, 65536, 262144), budget_s), compute_s(world)


def test_all_ranks_have_the_same_rows() -> None:
    results = run_ranks(work, 3, 30.0)
    rows = results[0][0]
    assert all(result[0] == rows for result in results)
    assert [row.num_bytes for row in rows] == [4096, 65536, 262144]
    assert all(row.right and row.seconds > 0 for row in rows)
    assert all(result[1] > 0 for result in results)


def test_the_first_size_is_measured_without_any_budget() -> None:
    (rows, _), _ = run_ranks(work, 2, 0.0)
    assert [row.num_bytes for row in rows] == [4096]


def test_bandwidths() -> None:
    row = Row(num_bytes=1000, seconds=0.5, right=True)
    assert row.algbw == 2000
    assert row.busbw(2) == 2000
    assert row.busbw(4) == 3000
