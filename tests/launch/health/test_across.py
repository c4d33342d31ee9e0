from dataclasses import replace

import pytest

from lockstep.launch.health import across
from lockstep.launch.health.link import Link
from lockstep.launch.health.pairs import Pair
from lockstep.launch.health.ranks import Clock, Measured, NodeReport
from lockstep.launch.health.sweep import Row

PAIRS = (Pair(0, 1, 1e8), Pair(1, 2, 1e8), Pair(2, 0, 1e8))
FACTS = {"Python": "3.11.7", "torch": "2.13.0", "driver": "550.1"}
NODE = NodeReport(0, "a", FACTS, (), Link("network", 0.0))


def nodes(**changed: str) -> list[NodeReport]:
    return [NODE, replace(NODE, node=1, host="b"), replace(NODE, node=2, host="c", facts=FACTS | changed)]


def test_equal_versions_are_one_line() -> None:
    (check,) = across.versions(nodes())
    assert (check.status, check.seen) == ("ok", "equal on 3 nodes: Python, torch, driver")


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("torch", "2.12.1", "fail"),
        ("Python", "3.12.1", "fail"),
        ("Python", "3.11.9", "warn"),
        ("driver", "560", "warn"),
        ("NCCL", "2.27", "fail"),
    ],
)
def test_what_differs_is_named_by_node(name: str, value: str, status: str) -> None:
    (check,) = across.versions(nodes(**{name: value}))
    assert (check.name, check.status) == (name, status)
    assert check.seen == f"{FACTS.get(name, 'none')} on nodes 0, 1; {value} on node 2"


@pytest.mark.parametrize(
    ("clock", "status", "must"),
    [
        (Clock(1, 0.002, 0.001), "ok", "0.002 s ahead of node 0"),
        (Clock(1, -90.0, 0.001), "warn", "90.000 s behind node 0"),
        (Clock(1, 1.5, 0.8), "ok", "(to 0.800 s)"),
    ],
)
def test_clocks(clock: Clock, status: str, must: str) -> None:
    check = across.clock(clock)
    assert check.status == status
    assert must in check.seen


def test_a_slow_rank_is_named() -> None:
    assert across.spread([0.010, 0.011], [0, 0]).status == "ok"
    check = across.spread([0.010, 0.011, 0.010, 0.021], [0, 0, 1, 1])
    assert check.status == "warn"
    assert check.seen.endswith("slow: rank 3 (node 1)")
    assert across.spread([0.01, 0.02], [0, 0]).seen.endswith("slow: rank 1")


def test_all_that_was_found_together() -> None:
    rows, speeds = (Row(4096, 0.001, True),), (0.01, 0.01, 0.01)
    measured = Measured(
        "gloo", 3, tuple(nodes()), (Clock(1, 0.0, 0.0), Clock(2, 0.0, 0.0)), rows, speeds, (0, 1, 2), PAIRS
    )
    assert [check.name for check in across.checks(measured)] == [
        "versions",
        "clock of node 1",
        "clock of node 2",
        "links",
        "speed",
        "ranks",
    ]
    alone = replace(measured, nodes=(NODE,), clocks=(), pairs=())
    assert [check.name for check in across.checks(alone)] == ["speed", "ranks"]
