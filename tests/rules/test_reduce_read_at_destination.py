"""LS404: what `reduce` leaves on other ranks is used there."""

import pytest

from lockstep.rules import reduce_read_at_destination
from tests.rules.by_hand import reduced, said, trace


def run(given: list[float], got: list[float], text: str, line: int = 20, op: str = "reduce") -> list:
    return [reduced(given, got, op=op, src=0), said(text, line=line)]


def test_all_ranks_print_it() -> None:
    (finding,) = reduce_read_at_destination.dynamic(
        trace(run([12, 16], [25, 32], "25 of 32"), run([13, 16], [13, 16], "13 of 16"))
    )
    assert "it holds 13, 16 there, and 25, 32 on rank 0" in finding.seen
    assert [one.rank for one in finding.witnesses] == [1, 0, 1]


def test_as_a_quotient() -> None:
    runs = run([12, 16], [25, 32], "accuracy 0.7813"), run([15, 16], [15, 16], "accuracy 0.9375")
    assert list(reduce_read_at_destination.dynamic(trace(*runs)))


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(
            [run([12, 16], [25, 32], "25 of 32"), [reduced([13, 16], [13, 16], op="reduce", src=0)]], id="rank 0"
        ),
        pytest.param(
            [run([12], [25], "25", op="all_reduce"), run([13], [25], "25", op="all_reduce")], id="reduced on all ranks"
        ),
        pytest.param([run([12], [25], "all 25"), run([13], [13], "mine 13", line=21)], id="each says what it has"),
        pytest.param([run([12], [25], "epoch 3"), run([13], [13], "epoch 3")], id="says something else"),
    ],
)
def test_left_alone(runs: list[list]) -> None:
    assert not list(reduce_read_at_destination.dynamic(trace(*runs)))
