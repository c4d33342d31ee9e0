"""LS302: a file that one rank reads while another may still be writing it."""

import pytest

from lockstep.rules import read_after_written
from lockstep.trace.events import Collective
from tests.rules.by_hand import HERE, barrier, file, moved, steps, trace


def test_loaded_at_once() -> None:
    (finding,) = read_after_written.dynamic(
        trace([*steps(), file("save"), file("load", line=12)], [*steps(), file("load", line=12)])
    )
    assert "rank 0 writes model.pt, and rank 1 reads it" in finding.seen
    assert [(one.rank, str(one.place)) for one in finding.witnesses] == [(0, f"{HERE}:10"), (1, f"{HERE}:12")]


def test_moved_into_place_but_too_late() -> None:
    writes = [*steps(), file("save", "a.tmp"), moved("a.tmp", "a.pt")]
    (finding,) = read_after_written.dynamic(trace(writes, [*steps(), file("load", "a.pt")]))
    assert "a.pt" in finding.seen


def test_a_barrier_before_the_writing_is_none() -> None:
    assert list(read_after_written.dynamic(trace([barrier(), file("save")], [barrier(), file("load")])))


def test_removed_before_it_is_read() -> None:
    (finding,) = read_after_written.dynamic(
        trace(
            [file("save", "part/a.pt"), barrier(), file("load", "part/a.pt"), file("remove", "part", line=14)],
            [barrier(), file("load", "part/a.pt")],
        )
    )
    assert "removes part" in finding.seen
    assert "before the removal" in finding.next_step


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(([file("save"), barrier(), file("load")], [barrier(), file("load")]), id="a barrier between"),
        pytest.param(([file("save"), *steps()], [*steps(), file("load")]), id="a step between"),
        pytest.param(
            ([file("load"), *steps(), file("save")], [file("load"), *steps()]), id="read before it is written"
        ),
        pytest.param(([file("save")], [file("load", "other.pt")]), id="another file"),
        pytest.param(([file("save"), file("load")],) * 2, id="several writers: LS301"),
        pytest.param(([file("save"), file("load")], []), id="the writer alone"),
        pytest.param(([file("write", "a.lock"), file("save")], [file("write", "a.lock"), file("load")]), id="a lock"),
    ],
)
def test_left_alone(runs: tuple[list, list]) -> None:
    assert not list(read_after_written.dynamic(trace(*runs)))


def test_news_that_a_third_rank_brings() -> None:
    first = Collective(number=0, op="barrier", group=1, ranks=(0, 1))
    second = Collective(number=0, op="barrier", group=2, ranks=(1, 2))
    assert not list(read_after_written.dynamic(trace([file("save"), first], [first, second], [second, file("load")])))
    assert list(read_after_written.dynamic(trace([file("save"), first], [second, first], [second, file("load")])))
