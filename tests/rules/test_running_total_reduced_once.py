"""LS403: a total that is reduced again and again."""

from collections.abc import Sequence

import pytest

from lockstep.rules import running_total_reduced_once
from lockstep.trace.events import Event
from tests.rules.by_hand import reduced, trace


def in_place(own: Sequence[float], others: Sequence[float], line: int = 30) -> list[Event]:
    """A total of one rank that is reduced after each addition; what the other adds is known to it."""
    total, other, events = 0.0, 0.0, []
    for mine, theirs in zip(own, others, strict=True):
        total, other = total + mine, other + theirs
        events.append(reduced([total], [total + other], tensor=7, line=line))
        total = other = total + other
    return events


def test_reduced_after_each_batch() -> None:
    hits = [3, 4, 2, 4], [4, 4, 1, 3]
    (finding,) = running_total_reduced_once.dynamic(trace(in_place(*hits), in_place(*hits[::-1])))
    assert "all-reduced 4 times: 7 came out on all ranks, and 11 went in on rank 0" in finding.seen


def fresh(values: Sequence[float], got: Sequence[float], tensor: int = 7) -> list[Event]:
    return [reduced([one], [all_of], tensor=tensor) for one, all_of in zip(values, got, strict=True)]


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(
            [fresh([3, 4, 5], [7, 9, 10]), fresh([4, 5, 5], [7, 9, 10])], id="a new tensor at the same address"
        ),
        pytest.param([fresh([3, 7, 12], [7, 16, 26])] * 2, id="copies of a running total"),
        pytest.param([fresh([1, 1, 1], [2, 2, 2])] * 2, id="flags"),
        pytest.param([fresh([0, 0, 0], [0, 0, 0])] * 2, id="zeros"),
        pytest.param([in_place([3, 4], [4, 4]), in_place([4, 4], [3, 4])], id="too few to be sure"),
    ],
)
def test_left_alone(runs: list[list]) -> None:
    assert not list(running_total_reduced_once.dynamic(trace(*runs)))
