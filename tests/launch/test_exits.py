"""`os._exit` in a rank leaves a record: who, where, with what."""

import os
from pathlib import Path

from lockstep.launch import record
from lockstep.launch.exits import note_exits


def leave(folder: Path, before: object = None, status: int = 3, fork: bool = False) -> int:
    """In a child: note exits, do something, leave. Returns its exit code."""
    child = os.fork()
    if not child:
        note_exits(folder, 1)
        if callable(before):
            before()
        if fork and os.fork():
            os.wait()
            os.execv("/bin/true", ["/bin/true"])
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_call_is_noted_with_its_line(tmp_path: Path) -> None:
    assert leave(tmp_path) == 3
    (failure,) = record.read_failures(tmp_path)
    assert (failure.rank, failure.kind, failure.message) == (1, "exit", "called os._exit(3)")
    assert failure.where.startswith("tests/launch/test_exits.py:") and failure.where.endswith(" in leave")
    assert failure.exit_code == 3


def test_code_0_is_no_success(tmp_path: Path) -> None:
    assert leave(tmp_path, status=0) == 0
    (failure,) = record.read_failures(tmp_path)
    assert failure.message == "left early: called os._exit(0) before its work was done"
    assert failure.exit_code == 1


def test_a_rank_that_is_done_leaves_no_record(tmp_path: Path) -> None:
    leave(tmp_path, lambda: record.write_done(tmp_path, 1))
    assert record.read_failures(tmp_path) == []


def test_an_earlier_record_stays(tmp_path: Path) -> None:
    earlier = record.Failure(1, "exception", "ValueError: no", "", "", "", 0, 1)
    leave(tmp_path, lambda: record.write_failure(tmp_path, earlier, ""))
    assert record.read_failures(tmp_path) == [earlier]


def test_a_child_of_the_rank_is_left_alone(tmp_path: Path) -> None:
    assert leave(tmp_path, fork=True) == 0
    assert record.read_failures(tmp_path) == []
