"""A function as the script of one or several ranks: under all hooks, or bare."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lockstep.trace import hooks
from lockstep.trace.events import End, Event, Start, Trouble
from lockstep.trace.feed import Feed, FeedPlan
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.trace import read_trace
from tests.ranks import run_ranks

E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class Seen:
    """What a rank returned, and what it told."""

    result: Any
    events: tuple[Event, ...]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def record(
    folder: Path,
    work: Callable[..., Any],
    *args: Any,
    num_ranks: int = 1,
    full: bool = False,
    feed: FeedPlan | None = None,
    trouble: bool = False,
) -> list[Seen]:
    """`work(*args)` under all hooks, rank by rank. trouble: whether the recorder may have had some."""
    trace = folder / "trace"
    trace.mkdir(exist_ok=True)
    results = run_ranks(_in_rank, num_ranks, Plan(trace, full), feed, work, args)
    seen = [Seen(result, rank.events) for result, rank in zip(results, read_trace(trace).ranks, strict=True)]
    assert trouble or not [event for one in seen for event in one.of(Trouble)]
    return seen


def record_one(folder: Path, work: Callable[..., Any], *args: Any, **options: Any) -> Seen:
    """The same with one rank."""
    (seen,) = record(folder, work, *args, **options)
    return seen


def bare(work: Callable[..., Any], *args: Any, num_ranks: int = 1) -> list[Any]:
    """What `work(*args)` returns where nothing is recorded."""
    return run_ranks(work, num_ranks, *args)


def _in_rank(plan: Plan, feed: FeedPlan | None, work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    recorder = start(plan, feed)
    result = work(*args)
    recorder.end(End(how="returned"))
    return result


def start(plan: Plan, feed: FeedPlan | None = None) -> Recorder:
    """Hook this process for good."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    recorder = Recorder(plan, rank)
    recorder.feed_plan = feed
    recorder.emit(Start(script="script.py", rank=rank, num_ranks=num_ranks))
    hooks.install(recorder, None if feed is None else Feed(feed))
    return recorder
