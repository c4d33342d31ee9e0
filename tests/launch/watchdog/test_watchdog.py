"""The watchdog over a real board and real processes that are no ranks; what it says, when, and when it is certain."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.launch.nodes import Nodes
from lockstep.launch.nodes.meeting import Meeting, meet
from lockstep.launch.record import write_done
from lockstep.launch.watchdog import Limits, Seen, Watchdog
from lockstep.trace.progress import Board, Marks

LIMITS = Limits(step_times=3.0, extra_s=0.2, deadline_s=0.8)
SLEEPER = "import time\ndef load_image():\n    print(flush=True)\n    time.sleep(100)\nload_image()\n"


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    with meet(Nodes(), 2, {}, lambda: False) as made:
        yield made


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER)
    command = [sys.executable, str(script)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()
    yield started
    for one in started:
        one.kill()
        one.communicate()


class Watched:
    """Two ranks whose marks the test makes."""

    def __init__(self, folder: Path, meeting: Meeting, sleepers: list[subprocess.Popen[str]]) -> None:
        self.board = Board(folder, 2, make=True)
        self.marks = [self.board.marks(rank) for rank in range(2)]
        self.said: list[str] = []
        self.watchdog = Watchdog(LIMITS, self.board, folder, meeting, self.said.append)
        self.seen = [Seen(rank, one.pid, False, False) for rank, one in enumerate(sleepers)]
        for marks in self.marks:
            for _ in range(5):
                step(marks)

    def poll_for(self, seconds: float) -> object:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (failure := self.watchdog.poll(self.seen)) is not None:
                return failure
            time.sleep(0.02)
        return None


def step(marks: Marks) -> None:
    with marks.collective("gradients", "", "/x/train.py:9"):
        time.sleep(0.001)
    marks.stepped()


@pytest.fixture
def watched(tmp_path: Path, meeting: Meeting, sleepers: list[subprocess.Popen[str]]) -> Watched:
    return Watched(tmp_path, meeting, sleepers)


def test_a_stall_is_reported_once_and_ended_at_the_deadline(watched: Watched) -> None:
    with watched.marks[0].collective("gradients", "", "/x/train.py:9"):
        failure = watched.poll_for(3.0)
    (report,) = watched.said
    assert report.startswith("Rank 1 does not advance since 0 s: in ")
    assert "sleeper.py:4 in load_image" in report and "sleeps (time.sleep)" in report
    assert "Others: rank 0 waits in the all_reduce of the gradients of step 5, backward (train.py:9)" in report
    assert failure is not None
    assert (failure.rank, failure.kind, failure.exit_code) == (1, "stall", 1)  # type: ignore[attr-defined]
    assert "sleeper.py:4 in load_image" in failure.where  # type: ignore[attr-defined]


def test_one_that_goes_on_is_told_of(watched: Watched) -> None:
    with watched.marks[0].collective("gradients", "", "/x/train.py:9"):
        assert watched.poll_for(0.5) is None
        step(watched.marks[1])
    assert watched.poll_for(0.05) is None
    assert len(watched.said) == 2 and watched.said[1].startswith("Rank 1 went on after")


def test_who_advances_is_left_alone(watched: Watched) -> None:
    for _ in range(20):
        for marks in watched.marks:
            step(marks)
        assert watched.poll_for(0.03) is None
    assert watched.said == []


def test_a_stopped_rank_is_seen_by_the_kernels_word_and_a_pause_is_not(watched: Watched) -> None:
    pid = watched.seen[1].pid
    os.kill(pid, signal.SIGSTOP)
    assert watched.poll_for(0.1) is None
    os.kill(pid, signal.SIGCONT)
    step(watched.marks[0])
    step(watched.marks[1])
    assert watched.poll_for(0.1) is None
    os.kill(pid, signal.SIGSTOP)
    failure = watched.poll_for(2.0)
    assert failure is not None
    assert failure.message == "Rank 1 was stopped (SIGSTOP) and cannot go on"  # type: ignore[attr-defined]
    assert "load_image" in failure.where  # type: ignore[attr-defined]


def test_once_a_rank_has_failed_its_cause_may_be_on_the_board(watched: Watched, tmp_path: Path) -> None:
    write_done(tmp_path, 1, "train.py:30 in main")
    with watched.marks[0].collective("gradients", "", "/x/train.py:9"):
        watched.seen[1] = Seen(1, watched.seen[1].pid, True, True)
        failure = watched.watchdog.explain(watched.seen)
    assert failure is not None
    assert failure.message == "Rank 1 left early: done after step 5, and the others still wait"
    assert failure.where == "train.py:30 in main"
    assert watched.watchdog.activities()[0].startswith("waits in the all_reduce")


def test_parameters_that_differ_make_the_run_a_failed_one(watched: Watched) -> None:
    for marks, value in zip(watched.marks, (1, 2), strict=True):
        marks.digest(5, value)
    watched.watchdog.last_look(watched.seen)
    assert len(watched.said) == 1 and "parameters of rank" in watched.said[0]
    assert watched.watchdog.wrong == watched.said
