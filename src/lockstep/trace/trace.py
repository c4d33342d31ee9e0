"""A recorded run in memory: one tuple of events a rank, and how the run ended. Pure values; torch-free."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from lockstep.core.errors import UserError, explain
from lockstep.trace.events import KINDS, Batch, Collective, End, Event, Start, plain

E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class RankTrace:
    """What one rank did, in order."""

    rank: int
    events: tuple[Event, ...]

    def of(self, *kinds: type[E]) -> Iterator[E]:
        """The events of these kinds, in order."""
        return (event for event in self.events if isinstance(event, kinds))

    @property
    def start(self) -> Start:
        """The first event."""
        return next(self.of(Start))

    @property
    def events_have_batches(self) -> bool:
        """Whether a loader handed out anything."""
        return next(self.of(Batch), None) is not None

    @property
    def end(self) -> End | None:
        """The last event; None if the process died, hung or was killed before it could tell."""
        return next(self.of(End), None)


@dataclass(frozen=True)
class Trace:
    """All ranks of one run. cut: why the run was ended from outside (`time`, `hang`), "" where it ended by itself."""

    ranks: tuple[RankTrace, ...]
    cut: str = ""

    @property
    def num_ranks(self) -> int:
        """How many ranks there are."""
        return len(self.ranks)

    def each(self, *kinds: type[E]) -> tuple[tuple[E, ...], ...]:
        """The events of these kinds, rank by rank."""
        return tuple(tuple(rank.of(*kinds)) for rank in self.ranks)


def rank_file(folder: Path, rank: int) -> Path:
    """Where a rank writes its events."""
    return folder / f"rank-{rank:05d}.jsonl"


def read_trace(folder: Path, cut: str = "") -> Trace:
    """Read what the ranks of a run have written; a last line that a crash left half-written is left out.

    Raises:
        UserError: the folder holds no trace, or a line is none of ours.
    """
    paths = sorted(folder.glob("rank-*.jsonl"))
    if not paths:
        seen = f"{folder} holds no trace"
        raise UserError(explain(seen, "rank-00000.jsonl and so on", next_step="record one: lockstep run --record DIR"))
    return Trace(tuple(RankTrace(int(path.stem[5:]), _events(path)) for path in paths), cut)


def _events(path: Path) -> tuple[Event, ...]:
    events = []
    lines: Sequence[bytes] = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line or number == len(lines):  # what follows the last newline was not finished
            continue
        try:
            fields = json.loads(line)
            events.append(KINDS[fields.pop("e")](**{key: plain(value) for key, value in fields.items()}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            seen = f"line {number} is no event ({error})"
            raise UserError(explain(seen, "a trace of this version of Lockstep", str(path))) from None
    return _merged(events)


def _merged(events: Sequence[Event]) -> tuple[Event, ...]:
    """A collective is told when it is called and when it has returned: one event, in the place of the call."""
    merged: list[Event] = []
    called: dict[int, int] = {}
    for event in events:
        if isinstance(event, Collective) and event.done and event.number in called:
            place = called.pop(event.number)
            call = merged[place]
            merged[place] = replace(event, at=call.at, time=call.time, step=call.step, end=event.time)
            continue
        if isinstance(event, Collective) and not event.done:
            called[event.number] = len(merged)
        merged.append(event)
    return tuple(merged)
