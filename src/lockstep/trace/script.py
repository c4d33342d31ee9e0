"""Running a user's script in this process under the recorder, as `python script.py args` would."""

import os
import runpy
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lockstep.trace import hooks
from lockstep.trace.events import End, Start
from lockstep.trace.feed import Feed, FeedPlan
from lockstep.trace.place import is_users
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.whoami import Whoami


@dataclass(frozen=True)
class Program:
    """A script as a user would start it. argv: what stands behind it. cwd: where it is started."""

    script: Path
    argv: tuple[str, ...] = ()
    cwd: Path = Path()

    def __str__(self) -> str:
        return " ".join([self.script.name, *self.argv])


def run_script(
    program: Program,
    plan: Plan,
    who: Whoami,
    feed: FeedPlan | None = None,
    on_enough: Callable[[], None] | None = None,
    prepare: Callable[[Recorder, Feed | None], None] | None = None,
) -> None:
    """Record the script from its first line to its last.

    Args:
        program: the script.
        plan: what is recorded, and when to stop.
        who: this process among the ranks.
        feed: where batches come from; None for the script's own loaders.
        on_enough: called when the asked number of steps is done; it does not return.
        prepare: called when the hooks are in place, before the script.

    Raises:
        whatever the script raises, and SystemExit with a code other than 0; both are in the trace.
    """
    recorder = Recorder(plan, who.rank, on_enough)
    recorder.feed_plan, recorder.prepare = feed, prepare
    recorder.emit(start_event(program, plan, who))
    source = Feed(feed) if feed is not None else None
    hooks.install(recorder, source)
    if prepare is not None:
        recorder.quiet = True
        prepare(recorder, source)
        recorder.quiet = False
    os.chdir(program.cwd)
    sys.argv = [str(program.script), *program.argv]
    sys.path[0:1] = [str(program.script.resolve().parent)]
    _run(program.script, recorder)


def start_event(program: Program, plan: Plan, who: Whoami) -> Start:
    """The first event of a trace."""
    return Start(
        script=str(program.script),
        argv=program.argv,
        cwd=str(program.cwd.resolve()),
        pid=os.getpid(),
        launch=who.launch,
        rank=who.rank,
        num_ranks=who.num_ranks,
        rank_of_node=who.rank_of_node,
        ranks_per_node=who.ranks_per_node,
        detail="full" if plan.full else "default",
        versions={"python": sys.version.split()[0], "torch": torch.__version__},
        threads=torch.get_num_threads(),
    )


_globals: list[dict[str, Any]] = []


def _run(script: Path, recorder: Recorder) -> None:
    try:
        # A wrapper that is destroyed after its process group can hang or abort: it lives as long as the process, which
        # ends without destructors.
        _globals.append(runpy.run_path(str(script), run_name="__main__"))
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        recorder.end(End(how="exited", code=code, error="" if code == 0 else str(leave.code), at=_where(leave)))
        if code:
            raise
    except BaseException as error:
        recorder.end(End(how="raised", code=1, error=f"{type(error).__name__}: {error}"[:4000], at=_where(error)))
        raise
    recorder.end(End(how="returned"))


def _where(error: BaseException) -> str:
    """The innermost frame of the user's that the error passed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    spots = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_users(frame.f_code.co_filename)
    ]
    return spots[-1] if spots else ""
