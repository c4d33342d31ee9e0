"""The first and last lines of a rank's process."""

import atexit
import faulthandler
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lockstep.launch import procs, record
from lockstep.launch.guard import guarded, leave
from lockstep.launch.signals import TORCH_SIGNALS_ENV, WATCHED


@dataclass(frozen=True)
class Work:
    """What a rank gets from its launcher.

    folder: where records go. lifelines: one for each rank. launchers_ends: their other ends, to be closed here; only
    forked ranks have them. loopback: name of the loopback network interface, or "".
    """

    target: Callable[..., None]
    args: tuple[Any, ...]
    folder: Path
    launcher_pid: int
    lifelines: tuple[Connection, ...]
    launchers_ends: tuple[Connection, ...]
    loopback: str


def rank_main(work: Work) -> None:
    """Run as one rank, and leave the process; the elastic agent's wrapper around it never gets control back.

    The wrapper has set torchrun's environment, asked for SIGINT at the parent's death and sent the faulthandler to
    stderr: the last two are replaced here.
    """
    rank, rank_of_node = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    procs.lead_group()
    for end in work.launchers_ends:
        end.close()
    procs.die_with(work.launcher_pid, work.lifelines[rank_of_node])
    if work.launchers_ends:
        atexit._clear()  # a forked rank would run the launcher's exit handlers
    _own_signals()
    # A spawned process would start its DataLoader workers by spawning too, where one that torchrun started forks them.
    multiprocessing.set_start_method(None, force=True)
    os.environ.pop(TORCH_SIGNALS_ENV, None)
    os.environ[record.FAILURES_ENV] = str(work.folder)
    if work.loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", work.loopback)
    with ExitStack() as open_files:
        with suppress(OSError):  # no space for it: the stack of a crash goes to stderr
            faulthandler.enable(open_files.enter_context(record.crash_file(work.folder, rank).open("w")))
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
