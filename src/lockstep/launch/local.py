"""Starting N ranks on this machine through torch's elastic agent, and saying how they ended."""

import itertools
import logging
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from torch.distributed.elastic.multiprocessing import SignalException

from lockstep.core.errors import RunError, UserError, explain
from lockstep.core.outcome import Exit
from lockstep.launch import procs, record
from lockstep.launch.agent import RankAgent
from lockstep.launch.leftovers import scratch
from lockstep.launch.rank import Work
from lockstep.launch.record import Failure
from lockstep.launch.rendezvous import HOST
from lockstep.launch.signals import SignalWatch
from lockstep.launch.verdict import RankEnd, Verdict, judge

StartMethod = Literal["auto", "fork", "spawn"]

_INTERRUPTED = {
    signal.SIGINT: Verdict("Interrupted: all ranks were ended.", Exit.INTERRUPTED),
    signal.SIGTERM: Verdict("Ended by SIGTERM: all ranks were ended at once, nothing was saved.", Exit.FAILED),
    signal.SIGHUP: Verdict("The terminal closed (SIGHUP): all ranks were ended at once.", Exit.FAILED),
}


def launch_local(
    target: Callable[..., None],
    args: tuple[Any, ...],
    num_ranks: int,
    *,
    work_dir: Path,
    start_method: StartMethod = "auto",
) -> Exit:
    """Run `target(*args)` in `num_ranks` processes with torchrun's environment, until all are done or one fails.

    A failure is printed to stderr as one block. No process is left in any way out, also when this one is killed; only
    then a temporary folder stays, which the next launch removes.

    Args:
        target: a function at the top level of a module; its errors are explained, its return value is dropped.
        args: its arguments; with "spawn" they are pickled.
        num_ranks: at least 1.
        work_dir: the run's folder; it need not exist. Tracebacks of a failure are left in `failures/` below it.
        start_method: "auto" forks where torch knows no GPU: the ranks inherit the imported torch and start in
            milliseconds. For that this process must not have run a torch operation before. Else it spawns.

    Returns: DONE, INTERRUPTED after Ctrl-C, else the exit code of the first cause.

    Raises:
        UserError: num_ranks is below 1.
        RunError: the processes could not be started.
    """
    outcome = run_local(target, args, num_ranks, work_dir=work_dir, start_method=start_method)
    if outcome.verdict.text:
        print(outcome.verdict.text, file=sys.stderr, flush=True)
    return outcome.verdict.exit


@dataclass(frozen=True)
class Outcome:
    """How the ranks ended. cut: the reason that `until` gave, "" if the run ended by itself. ended_by: the signal that
    came to this process meanwhile."""

    verdict: Verdict
    failures: tuple[Failure, ...]
    ends: tuple[RankEnd, ...]
    cut: str = ""
    ended_by: signal.Signals | None = None


def run_local(
    target: Callable[..., None],
    args: tuple[Any, ...],
    num_ranks: int,
    *,
    work_dir: Path,
    start_method: StartMethod = "auto",
    until: Callable[[], str] | None = None,
) -> Outcome:
    """As `launch_local`, but it prints nothing.

    Args:
        until: asked many times a second; the first text that is not "" ends all ranks.
    """
    if num_ranks < 1:
        raise UserError(explain(f"{num_ranks} ranks were asked for", "at least 1", next_step="give `--nproc 1`"))
    try:
        with scratch() as folder, SignalWatch() as watch, _orphans_adopted(), _quiet():
            ends, cut = _run(target, args, num_ranks, folder, _start_method(start_method), watch, until)
            failures = record.read_failures(folder)
            if watch.ended_by is not None and not all(end.done for end in ends):
                verdict = _INTERRUPTED[watch.ended_by]
            else:
                verdict = judge(failures, ends, _keep(folder, work_dir))
            return Outcome(verdict, tuple(failures), tuple(ends), cut, watch.ended_by)
    except OSError as error:
        raise RunError(
            explain(
                f"{num_ranks} processes could not be started: {error}",
                "the machine must allow as many processes and open files, and a temporary folder",
                next_step="start fewer ranks with `--nproc`; TMPDIR names another temporary folder",
            )
        ) from error


def _run(
    target: Callable[..., None],
    args: tuple[Any, ...],
    num_ranks: int,
    folder: Path,
    method: str,
    watch: SignalWatch,
    until: Callable[[], str] | None,
) -> tuple[list[RankEnd], str]:
    if method == "spawn":
        # Starting this helper lets signals through, so it must not happen while the ranks are started.
        resource_tracker.ensure_running()
    with ExitStack() as open_pipes:
        pipes = [multiprocessing.get_context(method).Pipe(duplex=False) for _ in range(num_ranks)]
        for end in itertools.chain(*pipes):
            open_pipes.enter_context(end)
        lifelines, launchers_ends = zip(*pipes, strict=True)
        forked_ends = launchers_ends if method == "fork" else ()
        work = Work(target, args, folder, os.getpid(), lifelines, forked_ends, _loopback())
        agent = RankAgent(work, num_ranks, method, watch, until)
        try:
            agent.run()
        except SignalException as stopped:
            # Only with a torch that has put in its own handlers, in the moment before ours are back.
            watch.note(stopped.sigval)
        return agent.ends(), agent.cut


def _start_method(asked: StartMethod) -> str:
    if asked != "auto":
        return asked
    # A process that has initialised a GPU cannot be forked, and with such a torch one cannot be sure that none has.
    return "spawn" if torch.version.cuda or torch.version.hip else "fork"


def _loopback() -> str:
    """Name of the interface with the loopback address: `lo` on most machines."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == HOST for address in addresses):
            return name
    return ""


def _keep(folder: Path, work_dir: Path) -> str:
    """Keep in the run's folder what the block on the screen does not show: whole tracebacks, stacks of a crash.

    Returns: where the user finds more, or "".
    """
    places = [work_dir / "logs"] if (work_dir / "logs").is_dir() else []
    texts = [path for path in sorted(folder.glob("rank-*.txt")) if path.stat().st_size]
    with suppress(OSError):  # a run folder that cannot be written is not what went wrong here
        if texts:
            kept = work_dir / "failures"
            kept.mkdir(parents=True, exist_ok=True)
            for path in texts:
                shutil.copy(path, kept)
            places.append(kept)
    return " and ".join(str(place) for place in places)


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    before = procs.adopt_orphans(True)
    try:
        yield
    finally:
        procs.adopt_orphans(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the agent's own log off the user's screen: the verdict says what it says, once and in words."""
    logger = logging.getLogger("torch.distributed.elastic")
    before, silent = logger.propagate, logging.NullHandler()
    logger.propagate = False
    logger.addHandler(silent)
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(silent)
