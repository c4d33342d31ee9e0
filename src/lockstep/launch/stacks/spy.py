"""py-spy: it reads the memory of the other process, which need not do anything for it."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lockstep.launch.stacks.stack import Frame, Stack, Thread, own_life, plain_name

# It reads while the process goes on, so a stack may change under its hands. The next try finds another one.
_TRIES = 3
_DRAIN_S = 0.1

_DENIED = "the system does not allow reading another process's memory (in a container: `--cap-add=SYS_PTRACE`)"
_REASONS = (
    ("permission denied", _DENIED),
    ("operation not permitted", _DENIED),
    ("failed to find python version", "it is no Python process"),
    ("no such file", "it has ended"),
    ("no such process", "it has ended"),
)


def find() -> str | None:
    """The program that was installed with this Python, else the one on PATH, else None."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def read(pids: Sequence[int], timeout_s: float) -> dict[int, Stack]:
    """The stacks of the processes, read at the same time within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    program = find()
    if program is None:
        return {pid: Stack(pid, (), "", "py-spy is not installed") for pid in pids}
    stacks: dict[int, Stack] = {}
    for _ in range(_TRIES):
        left = [pid for pid in pids if pid not in stacks or _may_do_better(stacks[pid])]
        if not left or (stacks and time.monotonic() > deadline):
            break
        stacks |= _once(program, left, deadline)
    return stacks


def _may_do_better(stack: Stack) -> bool:
    """Whether another try may help: not where the reason will be the same."""
    return not stack.source and stack.why not in {reason for _, reason in _REASONS}


def _once(program: str, pids: Sequence[int], deadline: float) -> dict[int, Stack]:
    running: dict[int, subprocess.Popen[str] | str] = {}
    for pid in pids:
        command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        try:
            running[pid] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            running[pid] = f"py-spy could not be started: {error}"
    return {pid: _collect(pid, started, deadline) for pid, started in running.items()}


def _collect(pid: int, started: "subprocess.Popen[str] | str", deadline: float) -> Stack:
    if isinstance(started, str):
        return Stack(pid, (), "", started)
    with started:
        try:
            # Also after the deadline what others have written meanwhile is taken.
            out, said = started.communicate(timeout=max(_DRAIN_S, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            started.kill()
            return Stack(pid, (), "", "py-spy did not end in time")
    if started.returncode:
        return Stack(pid, (), "", _reason(said))
    try:
        return Stack(pid, parse(pid, json.loads(out)), "py-spy")
    except (ValueError, KeyError, TypeError):
        return Stack(pid, (), "", "py-spy's answer could not be understood")


def parse(pid: int, dump: list[dict[str, Any]]) -> tuple[Thread, ...]:
    """The threads of a dump, the main one first."""
    threads = [
        Thread(
            thread["thread_name"] or "",
            thread["os_thread_id"] == pid,
            own_life(
                [Frame(frame["filename"], frame["line"], plain_name(frame["name"])) for frame in thread["frames"]]
            ),
            thread["active"],
        )
        for thread in dump
    ]
    if not any(thread.frames for thread in threads):
        raise ValueError("a running Python has frames")
    return tuple(sorted(threads, key=lambda thread: not thread.main))


def _reason(said: str) -> str:
    lower = said.lower()
    for words, reason in _REASONS:
        if words in lower:
            return reason
    first = next((line for line in said.splitlines() if line.strip()), "it gave no reason")
    return f"py-spy could not read it: {first.removeprefix('Error: ')}"
