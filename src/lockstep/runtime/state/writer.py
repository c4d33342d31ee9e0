"""Writing checkpoints beside the training: the step waits for the copy to host memory, not for the disk."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lockstep.runtime.state.checkpoint import Snapshot, listing, write
from lockstep.runtime.state.fellows import Fellows


@dataclass(frozen=True)
class Written:
    """How one save ended.

    Attributes:
        step: optimizer steps done.
        path: the finished folder, None where it failed.
        error: why it failed; beside a path, what failed after it was finished.
    """

    step: int
    path: Path | None
    error: str = ""


class Writer:
    """Writes snapshots in order, one at a time, on a thread of its own.

    Args:
        folder: the folder of checkpoints.
        asynchronous: return from `submit` before the snapshot is on disk.
        after: called after each finished save, on the same thread (pruning); by the leading rank only.
        fellows: the ranks that write together; each of them hands over the same snapshots in the same order.
    """

    def __init__(
        self,
        folder: Path,
        asynchronous: bool,
        after: Callable[[Snapshot], None],
        fellows: Fellows | None = None,
    ) -> None:
        self.folder, self.asynchronous, self.after, self.fellows = folder, asynchronous, after, fellows
        self._waiting: queue.Queue[Snapshot | None] = queue.Queue(maxsize=1)
        self._done: queue.Queue[Written] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._spent: Snapshot | None = None

    def spent(self) -> Snapshot | None:
        """A snapshot that has been written, for its memory; handed out once."""
        snapshot, self._spent = self._spent, None
        return snapshot

    def submit(self, snapshot: Snapshot) -> None:
        """Hand over a snapshot; waits only where the one before the last is still being written."""
        if not self.asynchronous:
            self._save(snapshot)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoint-writer", daemon=True)
            self._thread.start()
        self._waiting.put(snapshot)

    def finished(self) -> list[Written]:
        """The saves that ended since the last call."""
        ended = []
        while not self._done.empty():
            ended.append(self._done.get())
        return ended

    def close(self) -> list[Written]:
        """Wait for what was handed over; the saves that ended since the last call."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        return self.finished()

    def _run(self) -> None:
        while (snapshot := self._waiting.get()) is not None:
            self._save(snapshot)

    def _save(self, snapshot: Snapshot) -> None:
        try:
            path = write(self.folder, snapshot, self.fellows)
        except Exception as error:
            left = listing(self.folder)
            kept = f"the last good one is {left[0].name}" if left else "there is none yet"
            self._done.put(Written(snapshot.step, None, f"{error}; {kept}"))
            return
        try:
            if self.fellows is None or self.fellows.leads:
                self.after(snapshot)
        except Exception as error:
            self._done.put(Written(snapshot.step, path, str(error)))
        else:
            self._done.put(Written(snapshot.step, path))
        self._spent = snapshot
