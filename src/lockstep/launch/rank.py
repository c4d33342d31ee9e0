"""The first and last lines of a rank's process."""

import atexit
import faulthandler
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lockstep.launch import procs, record
from lockstep.launch.guard import guarded, leave
from lockstep.launch.signals import WATCHED


@dataclass(frozen=True)
class Work:
    """What a rank gets from its launcher.

    lifeline: read end of the launcher's pipe. launchers_end: the write end, to be closed here; only a forked rank
    has it. loopback: name of the loopback network interface, or "". folder: where records go.
    """

    target: Callable[..., None]
    args: tuple[Any, ...]
    folder: Path
    launcher_pid: int
    lifeline: Connection
    launchers_end: Connection | None
    loopback: str


def rank_main(work: Work) -> None:
    """Run as one rank, and leave the process; the elastic agent's wrapper around it never gets control back.

    The wrapper has set torchrun's environment, asked for SIGINT at the parent's death and sent the faulthandler to
    stderr: the last two are replaced here.
    """
    procs.lead_group()
    if work.launchers_end is not None:
        work.launchers_end.close()
        atexit._clear()  # a forked rank would run the launcher's exit handlers
    procs.die_with(work.launcher_pid, work.lifeline)
    _own_signals()
    os.environ[record.FAILURES_ENV] = str(work.folder)
    if work.loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", work.loopback)
    rank = int(os.environ["RANK"])
    with record.crash_file(work.folder, rank).open("w") as crash:
        faulthandler.enable(crash, all_threads=True)
        failure = guarded(work.target, work.args, rank)
        leave(0 if failure is None else failure.exit_code)


def _own_signals() -> None:
    """The launcher decides about Ctrl-C; all else ends a rank as it ends any process."""
    for number in WATCHED:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a background group may print to a terminal set to `tostop`
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
