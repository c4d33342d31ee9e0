"""LS301: a file that several ranks write at once."""

import pytest

from lockstep.core.finding import Severity
from lockstep.rules import one_writer
from lockstep.trace.events import Collective
from tests.rules.by_hand import HERE, barrier, file, moved, steps, trace


def test_the_same_checkpoint_of_two_ranks() -> None:
    run = [*steps(), file("save")]
    (finding,) = one_writer.dynamic(trace(run, run))
    assert finding.severity is Severity.ERROR
    assert "ranks 0 and 1 write model.pt" in finding.seen
    assert [(one.rank, str(one.place)) for one in finding.witnesses] == [(0, f"{HERE}:10"), (1, f"{HERE}:10")]


def test_files_of_one_line_are_one_finding() -> None:
    run = [event for epoch in range(3) for event in (*steps(), file("save", f"epoch-{epoch}.pt"))]
    (finding,) = one_writer.dynamic(trace(run, run))
    assert "epoch-0.pt and 2 more" in finding.seen


def test_a_move_to_the_same_name_is_a_write() -> None:
    runs = [[*steps(), file("save", f"{rank}.tmp"), moved(f"{rank}.tmp", "model.pt")] for rank in range(2)]
    (finding,) = one_writer.dynamic(trace(*runs))
    assert "model.pt" in finding.seen


def test_a_log_that_all_add_to_is_a_note() -> None:
    run = [*steps(), file("write", "train.log", append=True)]
    (finding,) = one_writer.dynamic(trace(run, run))
    assert finding.severity is Severity.NOTE


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(([*steps(), file("save")], steps()), id="rank 0 alone"),
        pytest.param(([file("save", "0.pt")], [file("save", "1.pt")]), id="each its own"),
        pytest.param(([file("write"), barrier()], [barrier(), file("write")]), id="in turn, by a barrier"),
        pytest.param(([file("write"), *steps()], [*steps(), file("write")]), id="in turn, by a step"),
        pytest.param(
            ([file("write", "data.npy"), barrier(), file("read", "data.npy")],) * 2, id="prepared data: LS304"
        ),
        pytest.param(([file("write", "a.lock"), file("write")],) * 2, id="behind a lock"),
        pytest.param(([file("mkdir", "runs")],) * 2, id="a folder"),
    ],
)
def test_left_alone(runs: tuple[list, list]) -> None:
    assert not list(one_writer.dynamic(trace(*runs)))


def test_who_hears_of_whom() -> None:
    """A broadcast tells its receivers that the source came there, and the source nothing of them."""
    told = Collective(number=0, op="broadcast", src=0, ranks=(0, 1))
    assert not list(one_writer.dynamic(trace([file("write"), told], [told, file("write")])))
    assert list(one_writer.dynamic(trace([told, file("write")], [file("write"), told])))


def test_ranks_that_send_to_each_other_are_not_judged() -> None:
    run = [Collective(number=0, op="send", src=1), file("save")]
    assert not list(one_writer.dynamic(trace(run, run)))


def test_a_run_that_was_cut() -> None:
    """Rank 1 never came to the last barrier: what went before still stands."""
    assert list(one_writer.dynamic(trace([file("save"), barrier()], [file("save")], cut="time")))
