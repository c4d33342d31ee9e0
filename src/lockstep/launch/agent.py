"""torch's elastic agent with an end of our own: all ranks are gone within seconds, whatever happened to one."""

import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.events.api import Event, EventSource
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousHandler

from lockstep.core.errors import RunError, explain
from lockstep.core.outcome import Exit
from lockstep.launch import frames, procs, record
from lockstep.launch.rank import Work, rank_main
from lockstep.launch.record import Failure
from lockstep.launch.signals import SignalWatch
from lockstep.launch.verdict import RankEnd
from lockstep.launch.watchdog import Seen, Watchdog
from lockstep.launch.witness import Witness

SETTLE_S = 1.0
"""How long the other ranks may say what they saw, once one has failed. Then they are killed."""
_POLL_S = 0.02
_AWAIT_S = 2.0


@contextmanager
def could_not_start(num_ranks: int) -> Iterator[None]:
    """What the system refuses in the block is told as a limit of the machine.

    Raises:
        RunError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RunError(
            explain(
                f"{num_ranks} processes could not be started: {error}",
                "the machine must allow as many processes and open files, and a temporary folder",
                next_step="start fewer ranks with `--nproc`; TMPDIR names another temporary folder",
            )
        ) from error


class NoLogs(LogsSpecs):
    """Ranks write to the launcher's own streams: no files and no threads that copy them."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Destinations for each local rank; "" is the launcher's own stream."""
        own = dict.fromkeys(envs, "")
        return LogsDest(stdouts=own, stderrs=own, error_files=own)

    @property
    def root_log_dir(self) -> str:
        """No folder."""
        return ""


class RankAgent(LocalElasticAgent):
    """Starts the ranks of one machine, watches them and ends them.

    Differs from torch's agent in its end. A rank that failed is waited for no longer than SETTLE_S, where torch sends
    SIGTERM and waits 30 s (which a stopped rank never sees). A rank that returned does not wait for the others to
    return. Exit code 0 counts only with the rank's word that its work is done.
    """

    def __init__(
        self,
        work: Work,
        num_ranks: int,
        start_method: str,
        rendezvous: RendezvousHandler,
        watch: SignalWatch,
        until: Callable[[], str] | None = None,
        watchdog: Watchdog | None = None,
        ask_stop: Callable[[], None] | None = None,
    ) -> None:
        spec = WorkerSpec(
            role="rank",
            local_world_size=num_ranks,
            entrypoint=rank_main,
            args=(work,),
            rdzv_handler=rendezvous,
            max_restarts=0,
            monitor_interval=0.1,
        )
        super().__init__(spec, NoLogs(), start_method)
        self._work = work
        self._watch = watch
        self._until = until
        self._watchdog = watchdog
        self._ask_stop = ask_stop
        self._handed = False
        self.cut = ""
        self.alarm: Failure | None = None
        self.activities: Mapping[int, str] = {}
        self._seen_ns = time.time_ns()
        self.witness = Witness()
        self._ends: dict[int, RankEnd] = {}
        self._over = False

    def ends(self) -> list[RankEnd]:
        """How each rank of this machine ended, in the order of ranks; to be asked after `run`."""
        return [self._ends.get(rank, RankEnd(rank, None)) for rank in self._ranks()]

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        num_ranks = worker_group.spec.local_world_size
        with warnings.catch_warnings(), self._watch.held(), could_not_start(num_ranks):
            # Threads of the store's server are alive at the fork. They hold no lock of Python's.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            pids: dict[int, Any] = super()._start_workers(worker_group)
            # A spawned rank imports for seconds before it can do this itself, for its whole group.
            for lifeline, pid in zip(self._work.lifelines, self._pids(), strict=True):
                procs.hang(lifeline.fileno(), pid)
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._watch.stop_asked:
            self._pause()
        if self._watch.asked is not None and not self._handed:
            self._hand_on(self._watch.asked)
        self._note_ends()
        procs.collect_orphans(self._pids())
        if self._watch.ended_by is not None:
            return RunResult(WorkerState.FAILED)
        if self._until is not None and (cut := self._until()):
            self.cut = cut
            return RunResult(WorkerState.FAILED)
        if any(not self._well(end) for end in self._ends.values()):
            self._take_stock()
            return RunResult(WorkerState.FAILED)
        if self._watchdog is not None and (alarm := self._watchdog.poll(self._seen())) is not None:
            self.alarm, self.activities = alarm, self._watchdog.activities()
            return RunResult(WorkerState.FAILED)
        if len(self._ends) == len(worker_group.workers):
            if not all(end.done for end in self._ends.values()):
                return RunResult(WorkerState.FAILED)
            if self._watchdog is not None:
                self._watchdog.last_look(self._seen())
            return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(self._ends))
        return RunResult(WorkerState.HEALTHY)

    def _well(self, end: RankEnd) -> bool:
        """Whether the others go on: it is done, or it has saved as it was asked to, and another may still be saving."""
        return end.done or (self._handed and end.code == Exit.PREEMPTED)

    def _hand_on(self, asked: signal.Signals) -> None:
        """Ask the ranks to save and end; a script that handles the signal gets it, any other is ended by it."""
        self._handed = True
        if self._ask_stop is not None:
            self._ask_stop()
            return
        handling = [pid for pid in self._pids() if procs.handles(pid, asked)]
        for pid in handling:
            procs.send(pid, asked)
        if not handling:
            self._watch.ended_by = asked

    def _take_stock(self) -> None:
        """A rank has failed: hear what the others say, for a moment, and what the board shows."""
        self._look_round()
        self._settle()
        if self.alarm is None and self._watchdog is not None:
            # A rank that was done has closed its connections a moment before its process ended.
            self.alarm = self._watchdog.explain(self._seen())

    def _look_round(self) -> None:
        """Before the others fall too: what they were doing, and whether the cause lies in that."""
        if self._watchdog is not None:
            self.alarm = self._watchdog.explain(self._seen())
            self.activities = self._watchdog.activities()

    def _seen(self) -> list[Seen]:
        found = []
        for rank, process in zip(self._ranks(), self._processes(), strict=False):
            end = self._ends.get(rank)
            found.append(Seen(rank, process.pid, end is not None, end is not None and end.done))
        return found

    def _ranks(self) -> list[int]:
        """The numbers of this machine's ranks among all; torch counts them once the machines have met."""
        workers = self.get_worker_group().workers
        return [worker.local_rank if worker.global_rank < 0 else worker.global_rank for worker in workers]

    def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while len(self._ends) < len(self._processes()) and time.monotonic() < deadline and not self._watch.ended_by:
            time.sleep(_POLL_S)
            self._note_ends()

    def _note_ends(self) -> None:
        """Keep the exit codes of ranks that have ended, dated by when they were last seen alive."""
        now_ns = time.time_ns()
        for rank, process in zip(self._ranks(), self._processes(), strict=False):
            if rank not in self._ends and process.exitcode is not None:
                where = ""
                crash = record.crash_file(self._work.folder, rank)
                if process.exitcode < 0 and crash.exists():
                    where = frames.crash_spot(crash.read_text(errors="replace"))
                killer = self.witness.killer(process.pid) if process.exitcode == -signal.SIGKILL else ""
                done = record.is_done(self._work.folder, rank)
                self._ends[rank] = RankEnd(rank, process.exitcode, done, self._seen_ns, where, killer)
        self._seen_ns = now_ns

    def _processes(self) -> list[Any]:
        """The `multiprocessing` objects of the ranks, in order; empty before they are started."""
        started = getattr(self._pcontext, "_pc", None)
        return list(started.processes) if started is not None else []

    def _pids(self) -> list[int]:
        return [process.pid for process in self._processes()]

    def _pause(self) -> None:
        """Ctrl-Z: the ranks are in groups of their own, which the terminal does not stop."""
        self._watch.stop_asked = False
        procs.signal_groups(self._pids(), signal.SIGSTOP)
        signal.raise_signal(signal.SIGSTOP)
        procs.signal_groups(self._pids(), signal.SIGCONT)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGKILL, timeout: int = 30) -> None:
        """End every rank and all it has started, at once. torch calls this at every way out, some twice."""
        if self._over:
            return
        self._note_ends()
        self._over = True
        pids = self._pids()
        procs.kill_trees(pids)
        super()._shutdown(signal.SIGKILL)
        procs.await_groups(pids, _AWAIT_S)

    def _exit_barrier(self) -> None:
        """Nothing: torch would wait here for the other machines, deaf to signals. `Link.reports` waits for them."""

    def _construct_event(self, state: str, source: EventSource, *args: Any, **kwargs: Any) -> Event:
        """Without torch's look-up of this machine's name, which can take seconds where it does not resolve."""
        return Event(f"torchelastic.worker.status.{state}", source=source)
