"""The recorder of one rank: hooks on torch and Python that turn what a script does into events."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.trace import digests
from lockstep.trace.events import End, Event, Raised, Start, Trouble
from lockstep.trace.feed import FeedPlan
from lockstep.trace.place import users_line
from lockstep.trace.sink import Sink, TensorFile, tensor_file
from lockstep.trace.trace import rank_file

MANY_STEPS = 64
"""At default detail digests are taken at each of the first so many steps, then at every 16th."""
TENSOR_BYTES = 1 << 30


@dataclass(frozen=True)
class Plan:
    """How a rank is to be recorded.

    folder: of the trace. full: digests of whole tensors. keep: at full detail, module outputs are told and values kept,
    at every step. steps: stop after so many
    optimizer steps, None for never. max_seconds: stop at the first step after so many seconds.
    """

    folder: Path
    full: bool = False
    keep: bool = True
    steps: int | None = None
    max_seconds: float | None = None


class Ours:
    """`with recorder.ours:` what goes wrong in here is told, and does not reach the script."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self._recorder.emit(Trouble(error=f"{type(error).__name__}: {error}"[:500]))
        return True


class Recorder:
    """Takes the events of one process. Hook files call `emit`, `where`, `patch` and `digest`; the rest is its owner's.

    Only the process that made it records: a forked child (a DataLoader worker) is left alone.
    """

    def __init__(self, plan: Plan, rank: int, on_enough: Callable[[], None] | None = None) -> None:
        self.plan, self.folder, self.full, self.rank = plan, plan.folder, plan.full, rank
        self.pid = os.getpid()
        self.step = 0
        self.steps_of: dict[int, int] = {}
        self._began = time.monotonic()
        self._on_enough = on_enough
        self._ended = False
        self.quiet = False
        self._path = rank_file(plan.folder, rank)
        self._sink = Sink(self._path)
        self.keeps = plan.full and plan.keep
        self._tensors = TensorFile(tensor_file(plan.folder, rank), TENSOR_BYTES) if self.keeps else None
        self.at_end: list[Callable[[], None]] = []
        self.after_step: list[Callable[[int], None]] = []
        self.watch_models: list[Callable[[Any], None]] = []
        self.optimizers: list[Any] = []
        self.before_forward: list[Callable[[], None]] = []
        self.start: Start | None = None
        self.ours = Ours(self)
        self.feed_plan: FeedPlan | None = None
        self.prepare: Callable[[Any, Any], None] | None = None

    @property
    def alive(self) -> bool:
        """Whether this process is the one that records, and the script's doings are what happens now."""
        return not self._ended and not self.quiet and os.getpid() == self.pid

    @property
    def detailed(self) -> bool:
        """Whether digests are due in this step: the same steps on all ranks."""
        return self.keeps or self.step < MANY_STEPS or self.step % 16 == 0

    def emit(self, event: Event) -> None:
        """Take an event; place, time and step are filled in where they are not given."""
        if not self.alive:
            return
        if not event.at:
            object.__setattr__(event, "at", self.where())
        if not event.time:
            object.__setattr__(event, "time", time.time())
        object.__setattr__(event, "step", self.step)
        if isinstance(event, Start):
            self.start = event
        self._sink.put(event)

    def move(self, path: Path) -> None:
        """Go on in another file: this process turned out to be no rank."""
        self._path.rename(path)
        self._path = path

    def flush(self) -> None:
        """Hand all events to the kernel: before a call that may not return."""
        if self.alive:
            self._sink.flush()

    def where(self) -> str:
        """The user's line, `path:line`, or ""."""
        return users_line(2)

    def digest(self, tensor: Tensor) -> str:
        """Of one tensor, at this run's detail."""
        return digests.full_digest(tensor) if self.full else digests.sampled_digests([tensor])[0]

    def digests(self, names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, str]:
        """{name: digest}, at this run's detail."""
        found = [digests.full_digest(one) for one in tensors] if self.full else digests.sampled_digests(tensors)
        return dict(zip(names, found, strict=True))

    def keep(self, tensor: Tensor, reserve: int = 0) -> int:
        """Keep a value at full detail, where `reserve` bytes are left for others; returns where, or -1."""
        if self._tensors is None or not self.alive:
            return -1
        return self._tensors.put(digests.to_numpy(tensor), reserve)

    def patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `make(original)`, which keeps its name and docstring."""
        original = getattr(owner, name)
        setattr(owner, name, functools.wraps(original)(make(original)))

    def raised(self, through: str, error: BaseException) -> None:
        """An exception passes through a recorded call; told once."""
        if isinstance(error, StopIteration) or getattr(error, "_lockstep_told", False):
            return
        with contextlib.suppress(AttributeError):  # one that takes no attribute is told at each call
            error._lockstep_told = True  # type: ignore[attr-defined]
        self.emit(Raised(through=through, error=f"{type(error).__name__}: {error}"[:2000]))
        self.flush()

    def stepped(self, optimizer: int) -> None:
        """An optimizer step is complete; ends the run when it was asked to stop here."""
        if not self.alive:
            return
        self.step += 1
        for follow in self.after_step:
            follow(self.step)
        self.steps_of[optimizer] = self.steps_of.get(optimizer, 0) + 1
        if self._enough(optimizer) and self._on_enough is not None:
            self.end(End(how="enough"))
            self._on_enough()

    def _enough(self, optimizer: int) -> bool:
        limit, seconds = self.plan.steps, self.plan.max_seconds
        if limit is not None and (min(self.steps_of.values()) >= limit or self.steps_of[optimizer] >= 2 * limit + 1):
            return True
        return seconds is not None and time.monotonic() - self._began > seconds

    def end(self, event: End) -> None:
        """Take the last event."""
        if not self.alive:
            return
        for last in self.at_end:
            with self.ours:
                last()
        self.emit(event)
        self._sink.close()
        if self._tensors is not None:
            self._tensors.close()
        self._ended = True
