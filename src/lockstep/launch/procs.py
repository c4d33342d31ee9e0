"""Process trees that end together: what the Linux kernel does for us when nobody is left to do it in Python.

Every rank leads a process group, in which its DataLoader workers and other children are born. The launcher ends a
rank by ending its group. For the case that the launcher itself is killed, each rank hangs on a *lifeline*: a pipe
that only the launcher holds open for writing. When it closes, the kernel sends SIGKILL to the whole group, also to
processes that are stopped or stuck in C code. No thread and no Python code has to run for it.
"""

import ctypes
import fcntl
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


_STRAY_S = 2.0


def lead_group() -> None:
    """Make this process the leader of its own group. A terminal's Ctrl-C then reaches the launcher only."""
    with suppress(PermissionError):  # already the leader of a session
        os.setpgid(0, 0)


def hang(lifeline: int, pid: int) -> None:
    """Let the kernel send SIGKILL to a process, or to a group if pid is negative, when the lifeline's writer is gone.

    Args:
        lifeline: read end of a pipe. It works as long as somebody holds it open, so that process must hold it too.
        pid: belongs to the open file, which all that have inherited it share.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, pid)
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def die_with(launcher_pid: int, lifeline: Connection) -> None:
    """Tie this process and its group to the life of the launcher. Ends the process if the launcher is gone already.

    The parent-death signal covers the process alone (children do not inherit it); the lifeline covers the group.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Opened anew: the launcher has hung this process alone on the file that was inherited, at some moment.
    hang(os.open(f"/proc/self/fd/{lifeline.fileno()}", os.O_RDONLY | os.O_NONBLOCK), -os.getpgrp())
    if os.getppid() != launcher_pid:  # it died before the lines above could see it
        os._exit(1)


def adopt_orphans(adopt: bool) -> bool:
    """Whether orphans below this process become its children (else init's), so that it can wait for their end.

    Returns: what it was before.
    """
    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))
    return bool(before.value)


def signal_groups(leaders: Collection[int], number: signal.Signals) -> None:
    """Send a signal to every group that is still there."""
    for leader in leaders:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to one process, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal, as the kernel knows it."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def kill_trees(leaders: Collection[int]) -> None:
    """SIGKILL to ranks, their groups, and to descendants that have moved to a group of their own."""
    strays = []
    for rank in leaders:
        with suppress(psutil.Error):
            strays += psutil.Process(rank).children(recursive=True)
    signal_groups(leaders, signal.SIGKILL)
    for rank in leaders:
        # A rank that has not come so far as to lead a group is reached by its number only.
        with suppress(ProcessLookupError):
            os.kill(rank, signal.SIGKILL)
    for stray in strays:
        with suppress(psutil.Error):
            stray.kill()


def collect_orphans(leaders: Collection[int]) -> None:
    """Collect the ended orphans of the groups that this process has adopted; never a leader, it has a parent here."""
    for leader in leaders:
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_PGID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in leaders:
                    break
                os.waitpid(ended.si_pid, os.WNOHANG)


def children() -> set[int]:
    """Processes that this one has started or adopted."""
    return {child.pid for child in psutil.Process().children()}


def end_strays(known: Collection[int]) -> None:
    """SIGKILL to adopted processes that are not known: what ranks have started in sessions of their own, and left."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.pid in known or any("resource_tracker" in word for word in child.cmdline()):
                continue
            for stray in [*child.children(recursive=True), child]:
                stray.kill()
            child.wait(_STRAY_S)


def await_groups(leaders: Collection[int], timeout_s: float) -> None:
    """Wait until the groups are empty. The leaders themselves must have been collected."""
    deadline = time.monotonic() + timeout_s
    for leader in leaders:
        while time.monotonic() < deadline:
            collect_orphans(leaders)
            try:
                os.killpg(leader, 0)
            except (ProcessLookupError, PermissionError):
                break
            time.sleep(0.01)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
