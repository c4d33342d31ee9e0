"""The first and last lines of a rank's process."""

import atexit
import faulthandler
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lockstep.launch import asked, procs, record, stacks
from lockstep.launch.exits import note_exits
from lockstep.launch.guard import guarded, leave
from lockstep.launch.output import finish_output, send_output
from lockstep.launch.signals import TORCH_SIGNALS_ENV, WATCHED
from lockstep.trace.progress import Board, hooks


@dataclass(frozen=True)
class Work:
    """What a rank gets from its launcher.

    folder: where records go. lifelines: one for each rank. launchers_ends: their other ends, to be closed here; only
    forked ranks have them. environment: variables that are set where the user has not set them. watched: the rank marks
    its progress on the board in the folder. attempt: 0, or how often the ranks have been started before; restarts: how
    often that may be.
    output: folder for a log file of its own, None for none; all_ranks: whether every rank is shown.
    """

    target: Callable[..., str | None]
    args: tuple[Any, ...]
    folder: Path
    launcher_pid: int
    lifelines: tuple[Connection, ...]
    launchers_ends: tuple[Connection, ...]
    environment: Mapping[str, str]
    watched: bool = False
    attempt: int = 0
    restarts: int = 0
    output: Path | None = None
    all_ranks: bool = False


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
    for name, value in work.environment.items():
        os.environ.setdefault(name, value)
    os.environ.update(TORCHELASTIC_RESTART_COUNT=str(work.attempt), TORCHELASTIC_MAX_RESTARTS=str(work.restarts))
    with ExitStack() as open_files:
        with suppress(OSError):  # no space for it: the stack of a crash goes to stderr
            faulthandler.enable(open_files.enter_context(record.crash_file(work.folder, rank).open("w")))
        if work.watched:
            _mark_progress(work, rank, rank_of_node)
        note_exits(work.folder, rank)
        failure = guarded(_heard, (work, rank), rank)
        finish_output()
        leave(0 if failure is None else failure.exit_code)


def _heard(work: Work, rank: int) -> str | None:
    """The work, with its output where it is wanted; inside the guard, since a log file may not be writable."""
    if work.output is not None:
        send_output(work.output, rank, rank == 0 or work.all_ranks, prefix=work.all_ranks)
    return work.target(*work.args)


def _mark_progress(work: Work, rank: int, rank_of_node: int) -> None:
    board = Board(work.folder, int(os.environ["LOCAL_WORLD_SIZE"]))
    asked.listen(board)
    stacks.arm(record.stack_file(work.folder, rank))
    hooks.install(board.marks(rank_of_node))


def _own_signals() -> None:
    """The launcher decides about Ctrl-C; all else ends a rank as it ends any process."""
    for number in WATCHED:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a background group may print to a terminal set to `tostop`
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
