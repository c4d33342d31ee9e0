import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lockstep.launch.stacks import handler, read_stacks, spot, spy
from tests.launch.stacks import targets
from tests.launch.stacks.conftest import Start, read_when, within

BUSY = [targets.spin, targets.sleep, targets.hold_gil, targets.wait_for_lock]


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 10
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("target", BUSY)
def test_what_a_process_does(start: Start, target: Callable[[], None]) -> None:
    stack = read_when(start(target), lambda it: target.__name__ in spot(it))
    assert stack.source == "py-spy"
    assert stack.busy is (target in (targets.spin, targets.hold_gil))
    assert spot(stack).endswith(f" in {target.__name__}")
    frame = next(frame for frame in stack.main if frame.function == target.__name__)
    assert frame.file == targets.__file__ and within(target, frame.line)


@pytest.mark.parametrize("target", BUSY)
@pytest.mark.usefixtures("forbidden")
def test_what_a_process_does_where_none_may_look(start: Start, target: Callable[[], None], tmp_path: Path) -> None:
    file = tmp_path / "stack.txt"
    process = start(target, armed=file)
    stack = read_when(process, lambda it: target.__name__ in spot(it), fallback=file)
    assert stack.source == "faulthandler"
    assert stack.busy is (target in (targets.spin, targets.hold_gil))
    frame = next(frame for frame in stack.main if frame.function == target.__name__)
    assert frame.file == targets.__file__ and within(target, frame.line)
    assert process.is_alive()


def test_a_stopped_process_can_be_read(start: Start) -> None:
    process = start(targets.stop)
    assert process.pid
    wait_until_stopped(process.pid)
    assert read_stacks([process.pid])[process.pid].main[0].function == "stop"


@pytest.mark.usefixtures("forbidden")
def test_a_stopped_process_cannot_write_its_stack(start: Start, tmp_path: Path) -> None:
    process = start(targets.stop, armed=tmp_path / "stack.txt")
    assert process.pid
    wait_until_stopped(process.pid)
    began = time.monotonic()
    stack = read_stacks([process.pid], fallback={process.pid: tmp_path / "stack.txt"})[process.pid]
    assert time.monotonic() - began < 2
    assert stack.source == "" and "it is stopped" in stack.why and "does not allow" in stack.why


@pytest.mark.usefixtures("forbidden")
def test_a_process_that_is_not_armed_gets_no_signal(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "stack.txt"
    file.touch()
    process = start(targets.sleep)
    assert process.pid
    stack = read_stacks([process.pid], fallback={process.pid: file})[process.pid]
    assert stack.source == "" and "no handler" in stack.why
    time.sleep(0.1)
    assert process.is_alive()


@pytest.mark.usefixtures("forbidden")
def test_a_process_that_blocks_signals_is_not_waited_for(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "stack.txt"
    process = start(targets.block_signals, armed=file)
    assert process.pid
    time.sleep(0.2)
    began = time.monotonic()
    stack = read_stacks([process.pid], timeout_s=1.0, fallback={process.pid: file})[process.pid]
    assert time.monotonic() - began < 2
    assert stack.source == "" and "nothing in time" in stack.why


@pytest.mark.parametrize("armed", [False, True])
def test_the_main_thread_is_known(start: Start, tmp_path: Path, armed: bool, request: pytest.FixtureRequest) -> None:
    if armed:
        request.getfixturevalue("forbidden")
    file = tmp_path / "stack.txt" if armed else None
    stack = read_when(start(targets.two_threads, armed=file), lambda it: len(it.threads) == 2, fallback=file)
    assert [thread.main for thread in stack.threads] == [True, False]
    assert [thread.frames[0].function for thread in stack.threads] == ["spin", "sleep"]
    assert armed or stack.threads[1].name == "beside"


def test_several_at_once_and_each_for_itself(start: Start) -> None:
    sleeps, ended = start(targets.sleep), start(targets.end)
    ended.join(10)
    program = subprocess.Popen(["sleep", "1000"])
    try:
        assert sleeps.pid and ended.pid
        stacks = read_stacks([ended.pid, program.pid, sleeps.pid])
    finally:
        program.kill()
        program.wait()
    assert stacks[sleeps.pid].main[0].function == "sleep"
    assert (stacks[ended.pid].source, stacks[ended.pid].why) == ("", "it has ended")
    assert (stacks[program.pid].source, stacks[program.pid].why) == ("", "it is no Python process")


def test_one_that_ends_meanwhile() -> None:
    """Read while it goes: whatever is found, nothing is raised."""
    for pause_s in (0.0, 0.002, 0.005, 0.01):
        process = subprocess.Popen(["python3", "-S", "-c", f"import time; time.sleep({pause_s})"])
        stack = read_stacks([process.pid])[process.pid]
        process.wait()
        assert bool(stack.threads) == bool(stack.source)
        assert stack.source or stack.why


def test_a_zombie_has_ended() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read_stacks([process.pid])[process.pid].why == "it has ended"
    process.wait()


def test_a_reader_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setattr(spy, "find", lambda: str(program))
    began = time.monotonic()
    stacks = read_stacks([os.getpid(), os.getppid()], timeout_s=0.5)
    assert time.monotonic() - began < 2
    assert {stack.why for stack in stacks.values()} == {"py-spy did not end in time"}


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch, start: Start, tmp_path: Path) -> None:
    monkeypatch.setattr(spy, "find", lambda: None)
    assert "not installed" in read_stacks([os.getpid()])[os.getpid()].why
    file = tmp_path / "stack.txt"
    assert (
        read_when(start(targets.sleep, armed=file), lambda it: bool(it.source), fallback=file).source == "faulthandler"
    )


def test_a_forked_process_shows_its_own_life_only(start: Start) -> None:
    stack = read_when(start(targets.sleep), lambda it: bool(it.main) and it.main[0].function == "sleep")
    assert [frame.function for frame in stack.main] == ["sleep", "begin", "run"]


def test_no_process_is_asked_for_nothing() -> None:
    assert read_stacks([]) == {}


def test_the_signal_is_nobody_elses() -> None:
    assert signal.SIGRTMIN + 15 < handler.SIGNAL < signal.SIGRTMAX
