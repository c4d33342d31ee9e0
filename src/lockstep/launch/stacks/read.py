"""Reading the stacks of several processes at once, by py-spy, else by the processes' own signal handlers."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from lockstep.launch.stacks import handler, spy
from lockstep.launch.stacks.stack import Stack

_HANDLER_S = 1.0


def read_stacks(
    pids: Sequence[int], timeout_s: float = 3.0, fallback: Mapping[int, Path] | None = None
) -> dict[int, Stack]:
    """What each process does at this moment. Nothing is stopped or changed in them, and it never waits for them.

    Args:
        pids: processes of this user; each may be gone, stopped or no Python.
        timeout_s: how long all of it may take, in seconds.
        fallback: the file that a process has given to `arm`, for the case that reading from outside is not allowed.

    Returns: a stack for every pid. One that could not be read says why.
    """
    deadline = time.monotonic() + timeout_s
    # Something is kept back for those that refuse.
    found = spy.read(pids, timeout_s - min(_HANDLER_S, timeout_s / 3) if fallback else timeout_s)
    stacks = {}
    for pid in pids:
        stack = found[pid]
        if not stack.source and fallback and pid in fallback and not _gone(pid):
            stack = handler.read(pid, fallback[pid], min(deadline, time.monotonic() + _HANDLER_S), stack.why)
        if not stack.source and _gone(pid):
            stack = Stack(pid, (), "", "it has ended")
        stacks[pid] = stack
    return stacks


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True
