"""Buffers are the same on all ranks when they are read.

What must hold
    Ranks that evaluate together do it with the same buffers: running means, running variances and the like.

Why
    Buffers follow what a rank has seen. DistributedDataParallel broadcasts rank 0's before each forward, but the
    forward itself changes them again, so that after training every rank has its own. A metric that is put together from
    ranks is then one of several models, and it is not that of the checkpoint.

How it shows
    The logged metric differs from that of the saved checkpoint, a little after long training, much after short. With
    `broadcast_buffers=False` ranks never agree, not even at the start.

Fix
    Let the layers use statistics of the whole batch (SyncBatchNorm, or an all-reduce of sums and counts), or broadcast
    rank 0's buffers before evaluation, or evaluate through the wrapper, which does that.

Example
    twins/same_buffers: a running mean follows each rank's share, and ranks evaluate with the inner module.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.alignment import PAIRED
from lockstep.rules.evidence.state import both_sides, differing, number_of
from lockstep.trace.events import Batch, Buffers, Collective, Event, Forward, Model, Wrap
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS115"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100", "LS102")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first evaluation of all ranks, with different buffers, whose results belong together."""
    read = [_read(rank) for rank in trace.ranks]
    for key in read[0]:
        if not all(key in others for others in read) or len({_named(rank, key[0]) for rank in trace.ranks}) > 1:
            continue
        sides = tuple(events[key][0] for events in read)
        names = differing([one.digests for one in sides], tuple(sides[0].digests))
        if names and _together([events[key][1] for events in read]):
            yield _finding(trace, sides, names)
            return


def _read(rank: RankTrace) -> dict[tuple[int, int], tuple[Buffers, tuple[Event, ...]]]:
    """{(model, step): the state of its buffers, what follows until training goes on}."""
    synced = {wrap.model for wrap in rank.of(Wrap) if wrap.broadcast_buffers}
    read = {}
    for index, event in enumerate(rank.events):
        if isinstance(event, Buffers) and event.when == "eval":
            follow = _until_training(rank.events[index + 1 :])
            call = next((one for one in follow if isinstance(one, Forward) and one.model == event.model), None)
            if call is None or call.via != "wrapper" or event.model not in synced:
                read[event.model, event.step] = event, follow
    return read


def _named(rank: RankTrace, number: int) -> tuple[str, ...]:
    """What a rank means by the number of a model: one that has a model more counts otherwise."""
    return next(((model.kind, *model.names) for model in rank.of(Model) if model.model == number), ())


def _until_training(events: Sequence[Event]) -> tuple[Event, ...]:
    trains = (at for at, event in enumerate(events) if isinstance(event, Forward) and event.training and event.grad)
    return tuple(events[: next(trains, len(events))])


def _together(follow: Sequence[Sequence[Event]]) -> bool:
    """Whether ranks evaluate shares of the data, or put their results together.

    Ranks that each evaluate everything for themselves may do so: rank 0's result is that of its own buffers.
    """
    shares = {_samples(events) for events in follow}
    joined = any(
        isinstance(event, Collective) and event.op not in PAIRED and "barrier" not in event.op and event.src is None
        for events in follow
        for event in events
    )
    return joined or len(shares) > 1


def _samples(events: Sequence[Event]) -> frozenset[object]:
    """What a rank read in an evaluation: indices, or digests of samples where there are none."""
    batches = [event for event in events if isinstance(event, Batch) and not event.grad]
    indices = {index for batch in batches for index in batch.ids or ()}
    rows = {row for batch in batches if batch.ids is None for some in batch.rows.values() for row in some}
    return frozenset(indices | rows)


def _finding(trace: Trace, sides: Sequence[Buffers], names: Sequence[str]) -> Finding:
    shown = ", ".join([*names[:3], *["..."] * (len(names) > 3)])
    return Finding(
        CODE,
        Severity.ERROR,
        f"after {number_of(sides[0].step, 'step')} ranks evaluate with different buffers: {len(names)} of "
        f"{len(sides[0].digests)} differ ({shown}).",
        "ranks that evaluate together do it with the same buffers",
        "broadcast rank 0's buffers before the evaluation, or keep statistics of the whole batch",
        both_sides(
            trace, sides, lambda index: f"{names[0]} is {sides[index].digests[names[0]]} when evaluation begins"
        ),
    )
