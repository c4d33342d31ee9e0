"""Processes whose stacks are read, forked from a server that has imported torch."""

import inspect
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
import pytest

from lockstep.launch.stacks import Stack, read_stacks, spy
from tests.launch.stacks import targets
from tests.ranks import PRELOAD

Start = Callable[..., ForkServerProcess]
SETTLED_S = 10.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `start(target, armed=file, **variables)`; it runs when this returns."""
    started: list[ForkServerProcess] = []

    def begin(target: Callable[[], None], armed: Path | None = None, **variables: str) -> ForkServerProcess:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        ready = tmp_path / f"ready-{len(started)}"
        arguments = (str(armed or ""), str(ready), target, variables)
        process = context.Process(target=targets.begin, args=arguments)
        started.append(process)
        process.start()
        deadline = time.monotonic() + 30
        while not ready.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield begin
    for process in started:
        if process.is_alive():
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.join(10)
        process.close()


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """py-spy answers as it does where ptrace is not allowed."""
    program = tmp_path / "py-spy"
    program.write_text(
        "#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(spy, "find", lambda: str(program))


def read_when(
    process: ForkServerProcess,
    true: Callable[[Stack], bool],
    fallback: Path | None = None,
    timeout_s: float = SETTLED_S,
) -> Stack:
    """Read the stack again and again until it shows what is waited for."""
    assert process.pid is not None
    deadline = time.monotonic() + timeout_s
    while True:
        stack = read_stacks([process.pid], fallback={process.pid: fallback} if fallback else None)[process.pid]
        if true(stack) or time.monotonic() > deadline:
            return stack
        time.sleep(0.02)


def within(function: Callable[..., object], line: int) -> bool:
    """Whether a line belongs to a function."""
    lines, first = inspect.getsourcelines(function)
    return first <= line < first + len(lines)
