"""Scripts that start their ranks themselves: torch.multiprocessing.spawn, and forks that join a process group."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch.multiprocessing as mp

from lockstep.trace.events import End, Start
from lockstep.trace.feed import FeedPlan
from lockstep.trace.recorder import Plan, Recorder

LAUNCHER = "launcher.jsonl"
"""The trace of the process that only starts others."""


@dataclass(frozen=True)
class SpawnedRank:
    """The function of a spawned rank, with the recorder around it. Pickled to the child."""

    function: Callable[..., Any]
    plan: Plan
    start: Start
    feed: FeedPlan | None
    num_ranks: int
    prepare: Callable[[Any, Any], None] | None = None

    def __call__(self, rank: int, *args: Any) -> None:
        """Run as one rank."""
        from lockstep.trace import hooks
        from lockstep.trace.feed import Feed

        recorder = Recorder(self.plan, rank, lambda: os._exit(0))
        recorder.emit(
            replace(
                self.start,
                launch="spawn",
                pid=os.getpid(),
                rank=rank,
                num_ranks=self.num_ranks,
                rank_of_node=rank,
                ranks_per_node=self.num_ranks,
            )
        )
        feed = replace(self.feed, rank=rank, num_ranks=self.num_ranks) if self.feed is not None else None
        source = Feed(feed) if feed is not None else None
        hooks.install(recorder, source)
        if self.prepare is not None:
            recorder.quiet = True
            self.prepare(recorder, source)
            recorder.quiet = False
        try:
            self.function(rank, *args)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
            recorder.end(End(how="exited", code=code, error="" if code == 0 else str(leave.code)))
            raise
        except BaseException as error:
            recorder.end(End(how="raised", code=1, error=f"{type(error).__name__}: {error}"[:4000]))
            raise
        recorder.end(End(how="returned"))


def install(recorder: Recorder) -> None:
    """Hook torch.multiprocessing.spawn."""
    module = sys.modules["torch.multiprocessing.spawn"]
    recorder.patch(module, "start_processes", lambda original: _start(original, recorder))
    mp.start_processes = module.start_processes  # type: ignore[attr-defined]


def _start(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    def start(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **kwargs: Any) -> Any:
        if not recorder.alive:
            return original(fn, args, nprocs, *rest, **kwargs)
        assert recorder.start is not None, "the first event of every process"
        recorder.flush()
        recorder.move(recorder.folder / LAUNCHER)
        rank = SpawnedRank(fn, recorder.plan, recorder.start, recorder.feed_plan, nprocs, recorder.prepare)
        return original(rank, args, nprocs, *rest, **kwargs)

    return start
