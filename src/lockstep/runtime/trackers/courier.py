"""Brings records to a tracker from a thread of its own, so that a slow or dead service costs the training nothing."""

import logging
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lockstep.core.errors import LockstepError, RunError, explain
from lockstep.runtime.trackers import Abandons, About, Tracker
from lockstep.runtime.trackers.memory import Memory

log = logging.getLogger("lockstep")

START_S = 60.0  # until a tracker has to have answered, before the first step
END_S = 30.0  # until it has to have taken what is left
END_FAILED_S = 5.0  # the same where the run has failed, or has to be gone soon
ROOM = 1000  # records that may wait for a tracker


@dataclass(frozen=True)
class _Record:
    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class _Finish:
    ending: str
    results: dict[str, float]


class Courier:
    """The way to one tracker.

    Args:
        tracker: its calls are made by a thread of this object.
        memory: what is kept for a resume. Records that the tracker has from an earlier start are not sent again.
        next_step: what a user can do where it cannot be started.
    """

    def __init__(self, tracker: Tracker, memory: Memory, next_step: str = "") -> None:
        self.name = tracker.name
        self._tracker = tracker
        self._memory = memory
        self._next_step = next_step
        self._already = memory.sent(self.name)
        self._records: queue.Queue[_Record | _Finish] = queue.Queue(ROOM)
        self._began: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._warned = False
        self._lost = 0
        self._thread: threading.Thread | None = None

    def begin(self, about: About, timeout_s: float = START_S) -> None:
        """Start the tracker and wait for it.

        Args:
            about: `run_id` is filled in here.
            timeout_s: most seconds until it has answered.

        Raises:
            UserError: the user's mistake, as the tracker says.
            RunError: it has failed otherwise, or not answered in time.
        """
        about = replace(about, run_id=self._memory.run_id(self.name))
        # A daemon: a process that ends does not wait for a service that does not answer.
        self._thread = threading.Thread(target=self._work, args=(about,), name=f"tracker {self.name}", daemon=True)
        self._thread.start()
        try:
            error = self._began.get(timeout=timeout_s)
        except queue.Empty:
            self._abandon()
            seen = f"{self.name} has not answered in {timeout_s:g} s"
            raise RunError(explain(seen, "it answers before the training begins", "", self._next_step)) from None
        if isinstance(error, LockstepError):
            raise error
        if error is not None:
            seen = f"{self.name} cannot be started: {told(error)}"
            raise RunError(explain(seen, "it answers before the training begins", "", self._next_step)) from error
        if self._already and about.run_id is not None:
            step = max(self._already.values())
            log.info("%s has this run up to step %d; what is done again is not sent again", self.name, step)

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over one record; returns at once."""
        new = {name: value for name, value in values.items() if step > self._already.get(name, -1)}
        if new:
            try:
                self._records.put_nowait(_Record(step, new))
            except queue.Full:
                self._lost += 1
                self._warn(f"it is {ROOM} records behind")

    def finish(self, ending: str, results: Mapping[str, float]) -> None:
        """Hand over the end of the run; returns at once, `wait` waits for it."""
        try:
            self._records.put_nowait(_Finish(ending, dict(results)))
        except queue.Full:
            self._lost += 1

    def wait(self, deadline: float) -> None:
        """Wait until all is written, or give up.

        Args:
            deadline: of `time.monotonic()`.
        """
        if self._thread is None:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._warned = True  # what follows from giving up is no news
            lost = self._lost + self._records.qsize()
            log.warning("%s has not taken all of the run in time: %d records are not sent", self.name, lost)
            self._abandon()
        elif self._lost:
            log.warning("%s has missed %d records", self.name, self._lost)

    def _work(self, about: About) -> None:
        try:
            self._memory.keep_id(self.name, self._tracker.about(about))
        except (Exception, SystemExit) as error:  # whatever a service's package raises is told by `begin`
            self._abandon()
            self._began.put(error)
            return
        self._began.put(None)
        while True:
            item = self._records.get()
            try:
                if isinstance(item, _Finish):
                    self._tracker.finish(item.ending, item.results)
                else:
                    self._tracker.record(item.step, item.values)
                    self._memory.keep_sent(self.name, item.step, item.values)
            except (Exception, SystemExit) as error:  # told; a service that fails does not end a training
                self._lost += isinstance(item, _Record)
                self._warn(told(error))
            if isinstance(item, _Finish):
                return

    def _abandon(self) -> None:
        if isinstance(self._tracker, Abandons):
            self._tracker.abandon()

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s does not take the numbers: %s; training goes on", self.name, why)


def told(error: BaseException) -> str:
    """An error of somebody else's in one line: what was raised, and the first cause of it; 200 characters of each."""
    first, seen = error, {id(error)}
    while (deeper := first.__cause__ or first.__context__) is not None and id(deeper) not in seen:
        first = deeper
        seen.add(id(first))
    return _line(error) if first is error else f"{_line(error)} (first: {_line(first)})"


def _line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:200].rstrip(": ")
