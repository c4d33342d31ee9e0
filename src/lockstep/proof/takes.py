"""One take: the program run once in one manner, in a copy of the user's folder, and what its trace shows."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import psutil

from lockstep import runtime
from lockstep.core.errors import RunError, UserError, explain
from lockstep.launch import procs
from lockstep.launch.attempts import Outcome
from lockstep.launch.leftovers import scratch
from lockstep.launch.local import run_local
from lockstep.launch.script import Manner, script_rank
from lockstep.proof import sandbox, stand_in
from lockstep.proof.modes import Mode
from lockstep.trace.events import Start
from lockstep.trace.feed import FeedPlan
from lockstep.trace.recorder import Plan
from lockstep.trace.script import Program
from lockstep.trace.trace import Trace, read_trace

QUIET_S = 30.0
"""A take in which no rank tells anything for so long is taken for stuck."""
WRITTEN = 2 << 30
"""A take that has written so many bytes is ended."""


@dataclass(frozen=True)
class Settings:
    """num_ranks: of the distributed takes. steps: optimizer steps of the takes that are compared. limit_s: the longest
    a take may last. spawns: the program starts its ranks itself."""

    num_ranks: int = 2
    steps: int = 8
    limit_s: float = 60.0
    spawns: bool = False
    quiet_s: float = QUIET_S


@dataclass(frozen=True)
class Take:
    """How a take went.

    Attributes:
        trace: of its ranks. folder: where trace and values lie. cut: `time`, `stuck` or `disk`: why it was ended.
        problem: why it did not run as a program should, "" if it did. at: where.
        output: what the ranks printed, the last 4,000 characters of each.
        over: wall clock when its last process was gone. left: processes that its ranks had left, and that were ended.
    """

    name: str
    trace: Trace
    folder: Path
    outcome: Outcome
    problem: str = ""
    at: str = ""
    output: tuple[str, ...] = ()
    seconds: float = 0.0
    over: float = 0.0
    left: tuple[str, ...] = ()

    @property
    def cut(self) -> str:
        """Why it was ended from outside, "" if it was not."""
        return self.outcome.cut


@dataclass
class Studio:
    """Runs takes, each in a folder of its own below one that goes away at the end."""

    folder: Path
    settings: Settings
    takes: list[Take] = field(default_factory=list)
    stand_in: bool = False

    def take(
        self,
        name: str,
        program: Program,
        num_ranks: int,
        mode: Mode,
        *,
        feed: FeedPlan | None = None,
        manner: Manner = Manner(),  # noqa: B008
        keep: bool = True,
        steps: int | None = None,
        workspace: Path | None = None,
        target: Callable[..., None] = script_rank,
        watched: "Callable[[Path], Watch] | None" = None,
    ) -> Take:
        """Run the program once.

        Args:
            num_ranks: processes; their manner says whether one of them is plain `python`.
            mode: what is changed. feed: where batches come from. keep: values are kept for comparison.
            steps: stop after so many optimizer steps, None for never.
            workspace: go on in this copy of the user's folder and its surroundings instead of a fresh one.
            target: what a rank runs. watched: makes of the take's folder what may end it from outside.
        """
        home = self.home(name)
        cwd = program.cwd.resolve()
        root = workspace or home / "work"
        if workspace is None:
            sandbox.copy_with_surroundings(cwd, root)
        plan = Plan(home / "trace", True, keep, steps)
        inner = _moved(program, sandbox.inside(root, cwd))
        prepare = Prepared(mode, root, home, num_ranks if self.stand_in else 0)
        spawns = self.settings.spawns  # then it is started as one process, whatever becomes of it
        manner = replace(manner, single=manner.single or spawns, threads=1, cpu=True, prepare=prepare)
        args, ranks = (inner, plan, feed, manner), 1 if spawns else num_ranks
        take = self.launch(name, target, args, ranks, home, root, watched)
        if not self.stand_in and stand_in.is_wanted(take.problem):
            # From here on CPUs stand in for the GPUs that the program names.
            self.stand_in = True
            if feed is not None and feed.role == "record":
                shutil.rmtree(feed.folder)
                feed.folder.mkdir()
            more: dict[str, Any] = {"feed": feed, "manner": manner, "keep": keep, "steps": steps}
            more |= {"workspace": workspace, "target": target, "watched": watched}
            return self.take(name, program, num_ranks, mode, **more)
        return take

    def home(self, name: str) -> Path:
        """The folder of the take that comes next, with one for its trace in it."""
        home = self.folder / f"{len(self.takes):02d}-{name.replace(' ', '-')}"
        (home / "trace").mkdir(parents=True)
        return home

    def launch(
        self,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        num_ranks: int,
        home: Path,
        workspace: Path,
        watched: "Callable[[Path], Watch] | None" = None,
    ) -> Take:
        """Run ranks that record themselves, and read what they have left.

        Args:
            target, args: what each rank runs.
            home: of this take. workspace: stands for the root of the file system, with copies and links of it.
            watched: makes of `home` what may end it from outside; None: only the limits of the settings do.

        Raises:
            KeyboardInterrupt, RunError: a signal has asked this process to end.
        """
        began = time.monotonic()
        watch = watched(home) if watched is not None else Watch(home, self.settings.limit_s, self.settings.quiet_s)
        known = procs.children()
        try:
            with _quiet_stdin():
                # Forked also where torch knows GPUs: this process has touched none, and the ranks see none.
                outcome = run_local(target, args, num_ranks, work_dir=home, start_method="fork", until=watch)
            if outcome.ended_by is not None:
                _interrupted(outcome.ended_by)
            left = strays(known, watch.patience_s())
            over = time.time()
        finally:
            procs.end_strays(known)
        take = _result(name, home, outcome, workspace, time.monotonic() - began)
        take = replace(take, over=over, left=left)
        self.takes.append(take)
        return take


@contextmanager
def open_studio(settings: Settings) -> Iterator[Studio]:
    """A studio; all that takes leave on disk goes away with it."""
    import torch._dynamo
    import torch._inductor  # noqa: F401  # the wrapper imports both; ranks are forked from here with them

    with scratch() as folder:
        yield Studio(folder, settings)


def workspace_of(take: Take) -> Path:
    """The copy of the user's folder that a take ran in, with its surroundings."""
    return take.folder.parent / "work"


def _moved(program: Program, workspace: Path) -> Program:
    cwd, script = program.cwd.resolve(), program.script.resolve()
    inside = script.is_relative_to(cwd)
    return Program(workspace / script.relative_to(cwd) if inside else script, program.argv, workspace)


@dataclass(frozen=True)
class Prepared:
    """In the rank, before the script: its own streams, its own files, and the mode.

    gpus: how many GPUs CPUs stand in for; 0: none.
    """

    mode: Mode
    workspace: Path
    home: Path
    gpus: int = 0

    def __call__(self, recorder: Any, feed: Any) -> None:
        """Called when the hooks are in place."""
        sandbox.guard_links(self.workspace)
        path = self.home / f"output-{recorder.rank:05d}.txt"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        sys.stderr.flush()
        for stream in (1, 2):
            os.dup2(file, stream)
        os.close(file)
        setattr(runtime, "fit", _proven_as_a_recipe)  # noqa: B010
        if self.gpus:
            stand_in.enter(recorder, self.gpus)
        self.mode(recorder, feed)


def _proven_as_a_recipe(*args: Any, **kwargs: Any) -> NoReturn:
    # Its plan says which samples each rank gets, so a feed of other batches would be judged as its fault.
    raise UserError(
        explain(
            "the script trains by `lockstep.runtime.fit`",
            "a loop of the script's own; that of `fit` is proven with its recipe",
            next_step="lockstep verify CONFIG, with the YAML file that the script loads",
        )
    )


def _interrupted(by: signal.Signals) -> NoReturn:
    """A take that the user ended says nothing about the program, and no other one follows."""
    if by is signal.SIGINT:
        raise KeyboardInterrupt
    raise RunError(explain(f"ended by {by.name}, in the middle of the proof"))


@contextmanager
def _quiet_stdin() -> Iterator[None]:
    """Ranks have nobody to ask: their standard input is empty."""
    kept = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(empty)


def strays(known: Collection[int], patience_s: float = 0.0) -> tuple[str, ...]:
    """Commands of processes that ranks have left in sessions of their own. patience_s: time that they have to end."""
    deadline = time.monotonic() + patience_s
    while True:
        found = []
        for child in psutil.Process().children():
            if child.pid in known:
                continue
            with suppress(psutil.Error, ChildProcessError):
                if child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)  # it has ended by itself
                    continue
                words = child.cmdline()
                if words and not any("resource_tracker" in word for word in words):
                    found.append(" ".join(words))
        if not found or time.monotonic() > deadline:
            return tuple(found)
        time.sleep(0.05)


class Watch:
    """Asked by the launcher many times a second whether this take has gone on for too long."""

    def __init__(self, home: Path, limit_s: float, quiet_s: float) -> None:
        self._home, self._limit_s, self._quiet_s = home, limit_s, quiet_s
        self._began = self._changed = self._looked = time.monotonic()
        self._sizes = 0

    def __call__(self) -> str:
        """Why it is to be ended, "" as long as it may go on."""
        now = time.monotonic()
        if now - self._looked < 0.5:
            return ""
        self._looked = now
        told = 0
        for path in self._home.glob("trace/*.jsonl"):
            with suppress(FileNotFoundError):  # renamed meanwhile
                told += path.stat().st_size
        if told != self._sizes:
            self._sizes, self._changed = told, now
        if now - self._began > self._limit_s:
            return "time"
        if now - self._changed > self._quiet_s:
            return "stuck"
        return "disk" if _written(self._home) > WRITTEN else ""

    def patience_s(self) -> float:
        """How long processes may outlive the ranks before they count as left behind, in seconds."""
        return 0.0


def _written(home: Path) -> int:
    """Bytes that the take has put on disk (values that we keep ourselves left out)."""
    total = 0
    for folder, _, files in os.walk(home):
        for name in files:
            with suppress(FileNotFoundError):  # the script has just removed it
                path = os.path.join(folder, name)  # noqa: PTH118
                total += 0 if name.endswith(".tensors") else os.lstat(path).st_blocks * 512
    return total


def _result(name: str, home: Path, outcome: Outcome, workspace: Path, seconds: float) -> Take:
    try:
        trace = read_trace(home / "trace", outcome.cut)
    except UserError:
        trace = Trace((), outcome.cut)
    if outcome.cut and trace.ranks and all(rank.end is not None for rank in trace.ranks):
        # All was done, and the process hung in its tear-down: that is torch's affair, and no part of the training.
        outcome, trace = replace(outcome, cut=""), replace(trace, cut="")
    outputs = tuple(_tail(path).replace(str(workspace), "") for path in sorted(home.glob("output-*.txt")))
    trace = _renamed(trace, workspace)
    problem, at = _problem(trace, outcome)
    return Take(name, trace, home / "trace", outcome, problem, at, outputs, seconds)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 4000, 0))
        return file.read().decode(errors="replace")


def _renamed(trace: Trace, workspace: Path) -> Trace:
    """Paths as the user knows them."""
    here = str(workspace)

    def renamed(event: Any) -> Any:
        changed = {
            key: value.replace(here, "")
            for key, value in vars(event).items()
            if isinstance(value, str) and here in value
        }
        return replace(event, **changed) if changed else event

    ranks = tuple(replace(rank, events=tuple(renamed(event) for event in rank.events)) for rank in trace.ranks)
    return replace(trace, ranks=ranks)


def _problem(trace: Trace, outcome: Outcome) -> tuple[str, str]:
    """Why this was no ordinary run of a program, and where; a run that did all it was asked to has none."""
    for rank in trace.ranks:
        end = rank.end
        if end is not None and end.how == "raised":
            return f"rank {rank.rank} raised {end.error}", end.at
        if end is not None and end.how == "exited" and end.code:
            why = "" if end.error in ("", str(end.code)) else f": {end.error}"  # sys.exit("no data")
            return f"rank {rank.rank} left with exit code {end.code}{why}", end.at
    started = bool(trace.ranks) and all(rank.events for rank in trace.ranks)
    if not started and not outcome.cut:
        return outcome.verdict.text or "no rank ran", ""
    if outcome.cut:
        # Where the process was started is no line of the user's.
        told = [event.at for event in trace.ranks[0].events if not isinstance(event, Start)] if started else []
        last = told[-1] if told else ""
        return {
            "time": "it did not end in time",
            "stuck": "no rank did anything for a long time",
            "disk": "it wrote gigabytes",
            "fault": "it did not end after one of its ranks had failed",
        }[outcome.cut], last
    for left, rank in zip(outcome.ends, trace.ranks, strict=False):
        if rank.end is None:
            own = (one for one in outcome.failures if one.kind in ("user", "run", "exception"))
            failed = next((one for one in own if one.rank == rank.rank), None)
            if failed is not None:
                return f"rank {rank.rank} failed: {failed.message.splitlines()[0].rstrip('.')}", failed.where
            code = left.code
            how = f"with signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
            return f"rank {rank.rank} was gone in the middle, {how}", rank.events[-1].at
    return "", ""


def remove(take: Take) -> None:
    """Free the disk that a take holds, but for its trace."""
    shutil.rmtree(workspace_of(take), ignore_errors=True)
