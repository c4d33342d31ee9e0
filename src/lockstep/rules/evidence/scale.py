"""Evaluations in a trace, on every rank: what was read, what was reduced, and what was then said about it."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lockstep.trace.events import (
    Backward,
    Batch,
    Collective,
    Event,
    File,
    Forward,
    Loader,
    Output,
    Pass,
    PassEnd,
    Schedule,
)
from lockstep.trace.trace import RankTrace, Trace

_NO_VALUES = ("barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "scatter", "scatter_object_list")
"""Collectives that bring no values of the other ranks together."""
TRACKERS = ("tensorboard", "wandb", "mlflow")


@dataclass(frozen=True)
class Evaluation:
    """One pass over data with forwards and without a backward, on one rank.

    samples: what was read: indices, or digests of the samples where there are no indices; () where neither is known.
    size: how many samples. during: events of the pass. after: events from its end to the next backward. first: the
    event that begins the pass.
    """

    rank: int
    stream: str
    number: int
    first: Pass
    samples: tuple[object, ...]
    size: int
    during: tuple[Event, ...]
    after: tuple[Event, ...]

    @property
    def reductions(self) -> tuple[Collective, ...]:
        """Collectives that bring values together, from the beginning of the pass to the next backward."""
        return reductions((*self.during, *self.after))

    @property
    def said(self) -> tuple[Output | File | Schedule, ...]:
        """Where a result may have been used: words, files, a scheduler that was given a value."""
        return tuple(
            event
            for event in self.after
            if isinstance(event, Output)
            or (isinstance(event, File) and event.op in ("save", "write"))
            or (isinstance(event, Schedule) and event.metric is not None)
        )


def reductions(events: Sequence[Event]) -> tuple[Collective, ...]:
    """The collectives that bring values of several ranks together."""
    return tuple(event for event in events if isinstance(event, Collective) and event.op not in _NO_VALUES)


def evaluations(trace: Trace) -> Iterator[tuple[Evaluation, ...]]:
    """Evaluations of the same data for the same time, on those ranks (two at least) that made them, in order."""
    found: dict[tuple[str, int], list[Evaluation]] = defaultdict(list)
    for rank in trace.ranks:
        for one in _of_rank(rank):
            found[one.stream, one.number].append(one)
    return (tuple(ranks) for ranks in found.values() if len(ranks) > 1)


def _of_rank(rank: RankTrace) -> Iterator[Evaluation]:
    events = rank.events
    backwards = [index for index, event in enumerate(events) if isinstance(event, Backward)]
    for begin, event in enumerate(events):
        if isinstance(event, Pass):
            end = _end(events, begin, event)
            during = events[begin:end]
            follows = next(iter(backwards[bisect_left(backwards, end) :][:1]), len(events))
            if _is_evaluation(during):
                batches = [one for one in during if isinstance(one, Batch) and _same_pass(one, event)]
                size = sum(one.size or len(one.ids or ()) for one in batches)
                samples = _samples(batches)
                after = events[end:follows]
                yield Evaluation(rank.rank, event.stream, event.number, event, samples, size, during, after)


def _end(events: Sequence[Event], begin: int, event: Pass) -> int:
    """One past the end of a pass: its PassEnd, or, where the script broke out, the forward of its last batch."""
    last = begin
    for index in range(begin + 1, len(events)):
        one = events[index]
        if isinstance(one, Pass) and one.loader == event.loader:
            break
        if isinstance(one, Batch | PassEnd) and _same_pass(one, event):
            last = index
            if isinstance(one, PassEnd):
                return index + 1
    return next((index + 1 for index in range(last, len(events)) if isinstance(events[index], Forward)), last + 1)


def _same_pass(one: Batch | PassEnd, event: Pass) -> bool:
    return one.loader == event.loader and one.number == event.number


def _is_evaluation(during: Sequence[Event]) -> bool:
    forwards = [event for event in during if isinstance(event, Forward)]
    trains = any(isinstance(event, Backward) for event in during)
    return bool(forwards) and not trains and all(not event.grad or not event.training for event in forwards)


def _samples(batches: Sequence[Batch]) -> tuple[object, ...]:
    if all(one.ids is not None for one in batches):
        return tuple(index for one in batches for index in one.ids or ())
    return tuple(row for one in batches if one.rows for row in next(iter(one.rows.values())))


def shared_out(trace: Trace, ranks: Sequence[Evaluation]) -> bool:
    """Whether the ranks evaluated different samples, each its share. False where they all evaluated the same ones."""
    sets = [set(one.samples) for one in ranks]
    if all(sets):
        most = max(len(one) for one in sets)
        return len(set().union(*sets)) > 1.5 * most
    return any(
        loader.stream == one.stream and (loader.sampler_ranks or 1) > 1
        for one in ranks
        for rank in trace.ranks
        if rank.rank == one.rank
        for loader in rank.of(Loader)
    )


def numbers(text: str) -> list[tuple[float, float]]:
    """The numbers in a text with a point in them, and half of their last digit: how far off each may be."""
    found = re.findall(r"(?<![\w.])-?\d+\.\d+(?:[eE][-+]?\d+)?", text)
    return [(float(one), _half_digit(one)) for one in found]


def readings(values: Sequence[float]) -> list[float]:
    """What a script may make of reduced values: the values, and the quotients of neighbours (a sum and its count)."""
    return [*values, *(first / second if second else 0.0 for first, second in pairwise(values))]


def _half_digit(text: str) -> float:
    digits, _, power = text.lower().partition("e")
    return 0.501 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
