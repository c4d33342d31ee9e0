from pathlib import Path

import pytest

from lockstep.launch.health import ranks
from lockstep.launch.health.check import Check
from tests.ranks import run_ranks

FACTS, CHECKS = {"torch": "2.13.0"}, (Check("CPU", "cores", "ok", "2 cores"),)


def work(result: Path) -> None:
    from lockstep.launch.health import sweep

    sweep.SIZES = (4096, 16384)
    ranks.rank_main(result, FACTS, CHECKS)


def test_two_nodes_of_two_ranks_bring_all_together(tmp_path: Path) -> None:
    run_ranks(work, 4, tmp_path / "result", ranks_per_node=2)
    found = ranks.read(tmp_path / "result")
    assert found is not None
    assert (found.backend, found.num_ranks, found.node_of_rank) == ("gloo", 4, (0, 0, 1, 1))
    assert [(report.node, report.facts, report.checks) for report in found.nodes] == [
        (0, FACTS, CHECKS),
        (1, FACTS, CHECKS),
    ]
    assert all(report.link.name == "network through lo" for report in found.nodes)
    assert [(pair.sender, pair.receiver) for pair in found.pairs] == [(0, 1), (1, 0)]
    assert all(pair.bytes_per_s > 0 for pair in found.pairs)
    (clock,) = found.clocks
    assert clock.node == 1
    assert abs(clock.ahead_s) <= clock.uncertain_s + 0.001, "it is the same clock"
    assert [row.num_bytes for row in found.rows] == [4096, 16384]
    assert len(found.compute_s) == 4


def test_one_machine_has_no_clocks_to_compare(tmp_path: Path) -> None:
    run_ranks(work, 2, tmp_path / "result")
    found = ranks.read(tmp_path / "result")
    assert found is not None
    assert found.clocks == found.pairs == ()
    assert [report.link.name for report in found.nodes] == ["memory of one machine"]


def test_nothing_was_left(tmp_path: Path) -> None:
    assert ranks.read(tmp_path / "result") is None


def test_a_result_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="cannot be written"):
        run_ranks(work, 2, tmp_path / "nowhere" / "result")
