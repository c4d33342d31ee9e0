"""Starting the ranks of this machine, and saying how they ended: the ways in."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from lockstep.core.errors import UserError, explain
from lockstep.core.outcome import Exit
from lockstep.launch import procs
from lockstep.launch.agent import could_not_start
from lockstep.launch.attempts import Attempts, Outcome
from lockstep.launch.earlier.strays import warn_of_strays
from lockstep.launch.leftovers import scratch
from lockstep.launch.nodes.meeting import meet
from lockstep.launch.nodes.trouble import StoppedError
from lockstep.launch.say import say
from lockstep.launch.signals import SignalWatch
from lockstep.launch.supervision import ALONE, Supervision
from lockstep.launch.verdict import Verdict

StartMethod = Literal["auto", "fork", "spawn"]


def launch_local(
    target: Callable[..., str | None],
    args: tuple[Any, ...],
    num_ranks: int,
    *,
    work_dir: Path,
    start_method: StartMethod = "auto",
    supervision: Supervision = ALONE,
) -> Exit:
    """Run `target(*args)` in `num_ranks` processes with torchrun's environment, until all are done or one fails.

    A failure is printed to stderr as one block. No process is left in any way out, also when this one is killed; only
    then a temporary folder stays, which the next launch removes.

    Args:
        target: a function at the top level of a module; its errors are explained; a text that it returns
            says where its work ended.
        args: its arguments; with "spawn" they are pickled.
        num_ranks: of this machine, at least 1.
        work_dir: the run's folder; it need not exist. Tracebacks of a failure are left in `failures/` below it.
        start_method: "auto" forks where torch knows no GPU: the ranks inherit the imported torch and start in
            milliseconds. For that this process must not have run a torch operation before. Else it spawns.
        supervision: the other machines, the watchdog's limits, restarts.

    Returns: DONE, INTERRUPTED after Ctrl-C, else the exit code of the first cause.

    Raises:
        UserError: num_ranks is below 1, or the machines do not fit together.
        RunError: the processes could not be started, or a machine did not come.
    """
    outcome = run_local(target, args, num_ranks, work_dir=work_dir, start_method=start_method, supervision=supervision)
    if outcome.verdict.text:
        say(outcome.verdict.text)
    return outcome.verdict.exit


def run_local(
    target: Callable[..., str | None],
    args: tuple[Any, ...],
    num_ranks: int,
    *,
    work_dir: Path,
    start_method: StartMethod = "auto",
    until: Callable[[], str] | None = None,
    supervision: Supervision = ALONE,
) -> Outcome:
    """As `launch_local`, but it does not print the verdict.

    Args:
        until: asked many times a second; the first text that is not "" ends all ranks.
    """
    if num_ranks < 1:
        raise UserError(explain(f"{num_ranks} ranks were asked for", "at least 1", next_step="give `--nproc 1`"))
    watched = supervision.limits is not None
    if watched and (left := warn_of_strays()):
        say(left)
    known = procs.children()
    with ExitStack() as ending:
        with could_not_start(num_ranks):
            folder = ending.enter_context(scratch())
        watch = ending.enter_context(SignalWatch(watched))
        ending.enter_context(_orphans_adopted())
        ending.enter_context(_quiet())

        def stopped() -> bool:
            return watch.ended_by is not None or watch.asked is not None

        try:
            with meet(supervision.nodes, num_ranks, supervision.facts, stopped) as meeting:
                run = Attempts(target, args, num_ranks, work_dir, _start_method(start_method), supervision)
                outcome = run.run(folder, watch, meeting, until)
        except StoppedError as error:
            return Outcome(Verdict(str(error), Exit.INTERRUPTED), (), (), ended_by=watch.ended_by)
        if watched and outcome.verdict.exit not in (Exit.DONE, Exit.PREEMPTED):
            # What a rank had started in a session of its own, and could not end any more.
            procs.end_strays(known)
        return outcome


def _start_method(asked: StartMethod) -> str:
    if asked != "auto":
        return asked
    # A process that has initialised a GPU cannot be forked, and with such a torch one cannot be sure that none has.
    return "spawn" if torch.version.cuda or torch.version.hip else "fork"


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
