"""One rank fails, in every way; the others are gone within 5 s and the block names the first."""

import os
import signal
import time

import psutil
import pytest

from lockstep.launch.agent import NoLogs
from tests.launch.conftest import Launch, Launcher

ALL_GONE_S = 5.0


def end(run: Launcher, family: list[psutil.Process]) -> float:
    """Wait for the launcher. Returns seconds until it and all it started were gone, not even a zombie left."""
    began = time.monotonic()
    run.wait(ALL_GONE_S)
    took = time.monotonic() - began
    assert [one for one in family if one.is_running()] == []
    return took


def test_an_exception_on_one_rank(launch: Launch) -> None:
    run = launch("raise_on", 1, num_ranks=3)
    assert run.wait() == 1
    lines = run.stderr.split("\n")
    assert lines[0] == "Rank 1 failed first: ValueError: label 12 is outside the 11 classes"
    assert lines[1].startswith("  Where: tests/launch/targets.py:") and lines[1].endswith(" in raise_on")
    assert lines[2:4] == ["  While: training, step 3", "  Others: ranks 0, 2: lost the connection (a consequence)"]
    assert "Traceback (most recent call last)" not in run.stderr
    assert "site-packages" not in run.stderr
    whole = (run.work_dir / "failures" / "rank-1.traceback.txt").read_text()
    assert "Traceback (most recent call last)" in whole


def test_a_killed_rank(launch: Launch) -> None:
    run = launch("work_for_ever", num_ranks=3)
    ranks = run.until_ready()
    ranks[1].kill()
    assert end(run, ranks) < ALL_GONE_S
    assert run.code == 1
    assert run.stderr.startswith("Rank 1 was killed by SIGKILL")
    assert "Others: ranks 0, 2: lost the connection (a consequence)" in run.stderr


def test_a_killed_rank_takes_its_children_and_a_stopped_rank_with_it(launch: Launch) -> None:
    run = launch("work_with_children")
    ranks = run.until_ready()
    family = run.descendants()
    assert len(family) >= 2 + 2 * 3
    ranks[0].suspend()
    ranks[1].kill()
    assert end(run, family) < ALL_GONE_S
    assert run.code == 1
    assert run.stderr.startswith("Rank 1 was killed by SIGKILL")
    assert "Others: rank 0: ended by the launcher" in run.stderr


@pytest.mark.parametrize(
    "target, args, first_line",
    [
        ("leave_on", [1, 0], "Rank 1 left early: called os._exit(0) before its work was done"),
        ("leave_on", [1, 3], "Rank 1 called os._exit(3)"),
        ("sys_exit_on", [0], "Rank 0 called sys.exit(3)"),
        ("run_error_from_lost_connection", [1], "Rank 1 failed first: KeyError: 'colour'"),
        ("return_early_on", [1], "Rank 1 ended before the others, which still waited: RuntimeError: "),
    ],
)
def test_other_ways_to_fail(launch: Launch, target: str, args: list[int], first_line: str) -> None:
    run = launch(target, *args)
    assert run.wait() == 1
    assert run.stderr.startswith(first_line)


def test_a_crash_names_the_users_line(launch: Launch) -> None:
    run = launch("crash_on", 1)
    assert run.wait() == 1
    lines = run.stderr.split("\n")
    assert lines[0] == "Rank 1 crashed with a segmentation fault (SIGSEGV)"
    assert lines[1].startswith("  Where: tests/launch/targets.py:") and lines[1].endswith(" in crash_on")


def test_a_rank_may_be_done_before_the_others(launch: Launch) -> None:
    run = launch("be_done_at_different_times")
    assert run.wait() == 0
    assert (run.ready(), run.stderr) == ([0, 1], "")


def test_a_rank_ended_from_outside(launch: Launch) -> None:
    run = launch("work_for_ever")
    os.kill(run.until_ready()[0].pid, signal.SIGTERM)
    assert run.wait() == 1
    assert run.stderr.startswith("Rank 0 was ended by SIGTERM")


def test_ranks_write_to_the_launchers_streams() -> None:
    destination = NoLogs().reify({0: {}, 1: {}})
    assert destination.stdouts == destination.stderrs == {0: "", 1: ""}
    assert destination.tee_stdouts == {} and NoLogs().root_log_dir == ""
