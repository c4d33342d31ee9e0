"""A fault put into one rank of a take: killed in a step, killed while it saves, or an error out of its backward."""

import atexit
import faulthandler
import json
import multiprocessing.util
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lockstep.launch.script import Manner, script_rank
from lockstep.proof.resume import GoesOn
from lockstep.proof.takes import Watch
from lockstep.trace.feed import Feed, FeedPlan
from lockstep.trace.hooks.files import INSIDE
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.script import Program

GONE_S = 5.0
"""All processes of a run have to be gone so many seconds after one of its ranks failed."""
STACK_S = 3.0
"""Seconds after the fault at which the rank that failed tells where it is, if it is still there."""
SAID = "out of memory: thrown by `lockstep verify`, to see what the program does when one rank fails"

_open_files: list[Any] = []


@dataclass(frozen=True)
class Strike:
    """A fault, and where it falls.

    kind: `kill` (SIGKILL in a backward), `save` (SIGKILL when half of a file is written by torch.save), `raise` (an
    error out of a backward; one that scripts are known to catch). rank: that it falls on. step: optimizer steps that
    this rank has completed by then, over all its optimizers. nth: of the saves at this step, from 0.
    """

    kind: Literal["kill", "save", "raise"]
    rank: int
    step: int
    nth: int = 0

    def arm(self, recorder: Recorder) -> None:
        """Called in every rank, when the hooks are in place."""
        home = recorder.folder.parent
        recorder.after_step.append(lambda step: _went_on(recorder, home) if step > self.step else None)
        if recorder.rank != self.rank:
            return
        if self.kind == "save":
            recorder.patch(torch, "save", lambda original: _saving(original, self, recorder))
            return
        due = _Due(self, recorder)
        recorder.patch(torch.autograd, "backward", lambda original: _before(original, due))
        register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: due("step"))


@dataclass(frozen=True)
class Mark:
    """That the fault has fallen: on which rank, in which step, when (wall clock), at which line of the user's."""

    rank: int
    step: int
    time: float
    at: str = ""
    path: str = ""


def read_mark(home: Path) -> Mark | None:
    """None where the fault has not fallen."""
    with suppress(OSError, ValueError, TypeError):
        return Mark(**json.loads(_mark(home).read_text(encoding="utf-8")))
    return None


def read_stack(home: Path) -> str:
    """Stacks of the threads of the rank that failed, STACK_S later; "" where it was gone by then."""
    with suppress(OSError):
        return _stack(home).read_text(encoding="utf-8", errors="replace")
    return ""


@dataclass(frozen=True)
class Struck(GoesOn):
    """A program of which one rank meets with a fault."""

    strike: Strike | None = None

    def __call__(self, recorder: Recorder, feed: Feed | None) -> None:
        """Called when the hooks are in place, before the script."""
        super().__call__(recorder, feed)
        if self.strike is not None:
            self.strike.arm(recorder)


class FaultWatch(Watch):
    """Ends a take GONE_S after the fault, or when all its ranks have gone on over it; or where no fault falls.

    due_s: seconds from its start in which the fault has to fall.
    """

    def __init__(self, home: Path, num_ranks: int, due_s: float, limit_s: float, quiet_s: float) -> None:
        super().__init__(home, limit_s, quiet_s)
        self._num_ranks, self._due, self._asked = num_ranks, time.monotonic() + due_s, 0.0

    def __call__(self) -> str:
        """Asked by the launcher many times a second."""
        now = time.monotonic()
        if now - self._asked < 0.05:
            return ""
        self._asked = now
        since = self._since()
        if since is None:
            return "time" if now > self._due else super().__call__()
        all_went_on = len(list(self._home.glob("went-on-*"))) >= self._num_ranks
        return "fault" if since > GONE_S or all_went_on else ""

    def patience_s(self) -> float:
        """What is left of the time in which all has to be gone."""
        since = self._since()
        return 0.0 if since is None else max(GONE_S - since, 0.0)

    def _since(self) -> float | None:
        mark = read_mark(self._home)
        return None if mark is None else time.time() - mark.time


def script_as_python(program: Program, plan: Plan, feed: FeedPlan | None, manner: Manner) -> None:
    """`script_rank`; but after an error it does what Python does at its exit, as under a plain torchrun.

    A thread that is waited for there, or an exit handler that waits for another rank, holds the process back.
    """
    try:
        script_rank(program, plan, feed, manner)
    except BaseException:
        for module, name in ((threading, "_shutdown"), (multiprocessing.util, "_exit_function")):
            with suppress(Exception):
                getattr(module, name)()
        atexit._run_exitfuncs()
        raise


class _Due:
    """Strikes once, when it is asked after the given step is complete."""

    def __init__(self, strike: Strike, recorder: Recorder) -> None:
        self.strike, self.recorder, self.done = strike, recorder, False

    def __call__(self, through: str) -> None:
        """A backward or an optimizer step is about to begin."""
        if self.done or not self.recorder.alive or self.recorder.step < self.strike.step:
            return
        self.done = True
        _tell(self.recorder)
        if self.strike.kind == "kill":
            _kill(self.recorder)
        home = self.recorder.folder.parent
        with _unseen():
            _open_files.append(_stack(home).open("w", encoding="utf-8"))
        faulthandler.dump_traceback_later(STACK_S, file=_open_files[-1])
        error = torch.OutOfMemoryError(SAID)
        self.recorder.raised(through, error)
        raise error


def _before(original: Callable[..., None], due: _Due) -> Callable[..., None]:
    def backward(*args: Any, **kwargs: Any) -> None:
        due("backward")
        original(*args, **kwargs)

    return backward


def _saving(original: Callable[..., None], strike: Strike, recorder: Recorder) -> Callable[..., None]:
    """torch.save, of which one call leaves half a file and no process."""
    seen = [0]

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        path = f if isinstance(f, str | os.PathLike) else getattr(f, "name", None)
        here = recorder.alive and recorder.step == strike.step and isinstance(path, str | os.PathLike)
        seen[0] += here
        if not here or seen[0] <= strike.nth:
            original(obj, f, *args, **kwargs)
            return
        assert path is not None
        recorder.flush()
        recorder.quiet = True  # a save that never ended is none
        original(obj, f, *args, **kwargs)
        if hasattr(f, "flush"):
            f.flush()
        os.truncate(path, Path(path).stat().st_size // 2)
        recorder.quiet = False
        _tell(recorder, os.fspath(path))
        _kill(recorder)

    return save


def _tell(recorder: Recorder, path: str = "") -> None:
    mark = Mark(recorder.rank, recorder.step, time.time(), recorder.where(), path)
    home = recorder.folder.parent
    with _unseen():
        beside = _mark(home).with_suffix(".new")
        beside.write_text(json.dumps(asdict(mark)), encoding="utf-8")
        beside.replace(_mark(home))


def _kill(recorder: Recorder) -> NoReturn:
    recorder.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def _went_on(recorder: Recorder, home: Path) -> None:
    recorder.flush()
    with _unseen():
        (home / f"went-on-{recorder.rank}").touch()


@contextmanager
def _unseen() -> Iterator[None]:
    """Files that are ours are none of the script's."""
    before = getattr(INSIDE, "busy", False)
    INSIDE.busy = True
    try:
        yield
    finally:
        INSIDE.busy = before


def _mark(home: Path) -> Path:
    return home / "fault.json"


def _stack(home: Path) -> Path:
    return home / "stack.txt"
