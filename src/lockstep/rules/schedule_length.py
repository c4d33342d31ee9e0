"""A schedule is as long as the training.

What must hold
    A learning-rate schedule that is stepped with the optimizer is built for the steps that a rank makes.

Why
    On N ranks an epoch has one N-th of the steps. A length computed from the whole dataset, or from a loader before it
    had its sampler, is N times too long; one that is divided twice, or a scheduler that is stepped once for every rank,
    is N times too short.

How it shows
    Too long: the rate never falls to its end, and the last, best part of the training does not happen. Too short: the
    rate is at its end after one N-th of the training, or rises again.

Fix
    Compute the length from the loader that is iterated, `epochs * len(loader)`, after it has its sampler, divided by
    the micro-batches of a step where there are several.

Example
    twins/schedule_length: the length is computed from the number of all samples and the batch size of one rank.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.trace.events import Backward, End, Pass, PassEnd, Schedule
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS405"
LAW = Law.SCALE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each scheduler whose length is N times, or one N-th of, the steps that it made."""
    if trace.cut or not all(_ended(rank.end) for rank in trace.ranks):
        return
    last: dict[int, list[tuple[RankTrace, Schedule]]] = defaultdict(list)
    for rank in trace.ranks:
        for number, event in {event.schedule: event for event in rank.of(Schedule)}.items():
            last[number].append((rank, event))
    for sides in last.values():
        if len(sides) == trace.num_ranks and all(_off(rank, event, trace.num_ranks) for rank, event in sides):
            yield _finding(sides)


def _ended(end: End | None) -> bool:
    return end is not None and end.how in ("returned", "exited") and end.code == 0


def _off(rank: RankTrace, event: Schedule, num_ranks: int) -> bool:
    passes = _training_passes(rank)
    if event.total is None or event.count <= passes + 1:  # stepped by the epoch: its length does not depend on N
        return False
    longer, shorter = max(event.total, event.count), min(event.total, event.count)
    # Rounding up to whole batches, once an epoch, on either side.
    slack = min((passes + 1) * num_ranks, shorter // 4)
    return num_ranks > 1 and abs(longer - num_ranks * shorter) <= slack


def _training_passes(rank: RankTrace) -> int:
    """Passes over data in which something was learned."""
    passes, open_pass = 0, False
    for event in rank.of(Pass, PassEnd, Backward):
        if isinstance(event, Pass):
            open_pass = True
        elif isinstance(event, Backward) and open_pass:
            passes, open_pass = passes + 1, False
    return passes


def _finding(sides: Sequence[tuple[RankTrace, Schedule]]) -> Finding:
    event = sides[0][1]
    total = event.total or 0
    how = "too long" if total > event.count else "too short"
    return Finding(
        CODE,
        Severity.ERROR,
        f"{event.kind} was built for {total} steps, and rank {sides[0][0].rank} made {event.count}: "
        f"it is {len(sides)} times {how}, as often as there are ranks.",
        "a schedule is built for the steps that a rank makes",
        "compute it from the loader that is iterated, `epochs * len(loader)`, and step it once an optimizer step",
        tuple(
            Witness(f"makes {one.count} of {one.total} steps", rank.rank, one.step, Place.parse(one.at))
            for rank, one in sides
        ),
    )
