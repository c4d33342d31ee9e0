"""One launch: the ranks of this machine are started, watched and ended, and started again where that is asked for."""

import itertools
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import SignalException

from lockstep.core.errors import RunError, explain
from lockstep.core.outcome import Exit
from lockstep.launch import nccl, record, report
from lockstep.launch.agent import RankAgent, could_not_start
from lockstep.launch.link import Link
from lockstep.launch.nodes import interfaces
from lockstep.launch.nodes.meeting import Meeting
from lockstep.launch.rank import Work
from lockstep.launch.record import Failure
from lockstep.launch.report import Report
from lockstep.launch.say import say
from lockstep.launch.signals import SignalWatch
from lockstep.launch.supervision import Supervision
from lockstep.launch.verdict import RankEnd, Verdict, judge
from lockstep.launch.watchdog import Limits, Watchdog
from lockstep.trace.progress import Board

_INTERRUPTED = {
    signal.SIGINT: Verdict("Interrupted: all ranks were ended.", Exit.INTERRUPTED),
    signal.SIGTERM: Verdict("Ended by SIGTERM: all ranks were ended at once, nothing was saved.", Exit.FAILED),
    signal.SIGUSR1: Verdict("Ended by SIGUSR1: all ranks were ended at once, nothing was saved.", Exit.FAILED),
    signal.SIGHUP: Verdict("The terminal closed (SIGHUP): all ranks were ended at once.", Exit.FAILED),
}


@dataclass(frozen=True)
class Outcome:
    """How the ranks ended. cut: the reason that `until` gave, or a signal on another machine; "" if the run ended by
    itself. ended_by: the signal that came to this process meanwhile."""

    verdict: Verdict
    failures: tuple[Failure, ...]
    ends: tuple[RankEnd, ...]
    cut: str = ""
    ended_by: signal.Signals | None = None


@dataclass(frozen=True)
class Attempts:
    """What is launched, and how.

    Args:
        target, args: what a rank runs. num_ranks: of this machine. work_dir: the run's folder.
        method: fork or spawn. supervision: limits, machines, restarts.
    """

    target: Callable[..., str | None]
    args: tuple[Any, ...]
    num_ranks: int
    work_dir: Path
    method: str
    supervision: Supervision

    def run(self, folder: Path, watch: SignalWatch, meeting: Meeting, until: Callable[[], str] | None) -> Outcome:
        """Start the ranks, and start them again after a failure as often as is asked for."""
        restarts = self.supervision.restarts
        for attempt in itertools.count():
            place = folder / str(attempt)
            place.mkdir()
            outcome = self._attempt(attempt, place, watch, meeting, until)
            failed = outcome.verdict.exit == Exit.FAILED and not outcome.cut and watch.ended_by is watch.asked is None
            if not failed or attempt == restarts:
                return outcome
            say(f"{outcome.verdict.text}\nRestart {attempt + 1} of {restarts}.")
        raise AssertionError

    def _attempt(
        self, attempt: int, folder: Path, watch: SignalWatch, meeting: Meeting, until: Callable[[], str] | None
    ) -> Outcome:
        with could_not_start(self.num_ranks):
            board = Board(folder, self.num_ranks, make=True)
        limits = self.supervision.limits
        watchdog = None if limits is None else Watchdog(limits, board, folder, meeting, say)
        link = Link(meeting, attempt, (limits or Limits()).link_s, until)
        agent = self._start(attempt, folder, watch, meeting, link, watchdog, board)
        mine = Report(
            failures=tuple(agent.witness.of_a_worker(one) for one in record.read_failures(folder)),
            ends=tuple(agent.ends()),
            alarm=agent.alarm or link.alarm,
            activities=agent.activities,
            ended_by=watch.ended_by.name if watch.ended_by else "",
            wrong=tuple(watchdog.wrong) if watchdog else (),
        )
        # All machines count by the clock of node 0: which rank failed first is a question of milliseconds.
        mine = report.on_clock(mine, meeting.clock_ahead_s)
        meeting.finish(attempt, report.to_text(mine))
        cut_off = all(failure.kind == "consequence" for failure in mine.failures)
        others = link.reports(mine.well, lambda: watch.ended_by is not None, cut_off)
        whole = report.merged([mine, *others])
        verdict = self._verdict(whole, watch, "" if mine.well else self._keep(folder), link)
        if verdict.exit == Exit.FAILED and (notes := nccl.notes(folder)):
            verdict = replace(verdict, text=f"{verdict.text}\n{notes}")
        cut = link.cut or (f"another machine: {whole.ended_by}" if whole.ended_by else "")
        return Outcome(verdict, whole.failures, whole.ends, cut, watch.ended_by)

    def _start(
        self,
        attempt: int,
        folder: Path,
        watch: SignalWatch,
        meeting: Meeting,
        link: Link,
        watchdog: Watchdog | None,
        board: Board,
    ) -> RankAgent:
        if self.method == "spawn":
            # Starting this helper lets signals through, so it must not happen while the ranks are started.
            resource_tracker.ensure_running()
        with ExitStack() as open_pipes:
            with could_not_start(self.num_ranks):
                pipes = [multiprocessing.get_context(self.method).Pipe(duplex=False) for _ in range(self.num_ranks)]
            for end in itertools.chain(*pipes):
                open_pipes.enter_context(end)
            lifelines, launchers_ends = zip(*pipes, strict=True)
            work = Work(
                target=self.target,
                args=self.args,
                folder=folder,
                launcher_pid=os.getpid(),
                lifelines=lifelines,
                launchers_ends=launchers_ends if self.method == "fork" else (),
                environment=_variables(meeting, folder),
                watched=watchdog is not None,
                attempt=attempt,
                restarts=self.supervision.restarts,
                output=self.supervision.output,
                all_ranks=self.supervision.all_ranks,
            )
            rendezvous, cut = meeting.rendezvous(attempt), link.cut_short
            ask_stop = board.ask_stop if self.supervision.saves else None
            agent = RankAgent(work, self.num_ranks, self.method, rendezvous, watch, cut, watchdog, ask_stop)
            _run(agent, watch)
            return agent

    def _verdict(self, whole: Report, watch: SignalWatch, logs: str, link: Link) -> Verdict:
        done = all(end.done for end in whole.ends)
        if watch.ended_by is not None and not done:
            return _INTERRUPTED[watch.ended_by]
        if whole.ended_by and not done:
            other = _INTERRUPTED[signal.Signals[whole.ended_by]]
            return Verdict(f"On another machine: {other.text}", other.exit)
        if watch.asked is not None and not self.supervision.saves and _ended_in_peace(whole.ends):
            text = f"Every rank ended by itself after {watch.asked.name}, which the script handles."
            return Verdict(text, Exit.PREEMPTED)
        verdict = judge(whole.failures, whole.ends, logs, whole.alarm, whole.activities)
        if verdict.exit == Exit.DONE and whole.wrong:
            first = "; ".join(text.partition("\n")[0] for text in whole.wrong)
            return Verdict(f"Every rank came to its end, but the run is not what it claims to be. {first}", Exit.FAILED)
        return verdict

    def _keep(self, folder: Path) -> str:
        """Keep in the run's folder what the block on the screen does not show: whole tracebacks, stacks of a crash.

        Returns: where the user finds more, or "".
        """
        logs = self.supervision.output or self.work_dir / "logs"
        places = [logs] if logs.is_dir() else []
        texts = [path for path in sorted(folder.glob("*-*.txt")) if path.stat().st_size]
        with suppress(OSError):  # a run folder that cannot be written is not what went wrong here
            if texts:
                kept = self.work_dir / "failures"
                kept.mkdir(parents=True, exist_ok=True)
                for path in texts:
                    shutil.copy(path, kept)
                places.append(kept)
        return " and ".join(str(place) for place in places)


def _run(agent: RankAgent, watch: SignalWatch) -> None:
    try:
        agent.run()
    except SignalException as stopped:
        # Only with a torch that has put in its own handlers, in the moment before ours are back.
        watch.note(stopped.sigval)
    except dist.DistError as error:
        # The agents' own words through the store, in the moment before the ranks are started.
        seen = f"the machines lost each other while the ranks were started: {str(error).strip()[:200]}"
        raise RunError(explain(seen, next_step="look at what the other launchers say")) from error


def _variables(meeting: Meeting, folder: Path) -> Mapping[str, str]:
    """What ranks are told, where the user has not set it: interfaces, and where NCCL writes its log.

    On one machine NCCL is left to choose an interface: it hardly uses the network there.
    """
    found = interfaces.variables(meeting.interface)
    if meeting.num_nodes == 1:
        found.pop(interfaces.NCCL, None)
    return {**found, **nccl.variables(folder, os.environ)} if dist.is_nccl_available() else found


def _ended_in_peace(ends: tuple[RankEnd, ...]) -> bool:
    """Whether every rank ended by itself, with its work done or with the code that says that it was preempted."""
    return all(end.done or end.code == Exit.PREEMPTED for end in ends)
