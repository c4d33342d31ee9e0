"""An error on one rank ends the training on all; no rank goes on over it alone.

What must hold
    A rank that catches an exception in a step does not go on as if the step had been made, unless all ranks do.

Why
    The other ranks have not seen the exception. They made the step; this rank did not, and from then on its n-th
    gradient is averaged with the n + 1st of the others. At the end it is a step short, and somebody waits.

How it shows
    A line in the log ("skipped a bad batch") and nothing else, then a hang at the end of an epoch, or none at all if
    other ranks skip as often. The unused-parameter error of the wrapper, caught like this, leaves ranks apart for good.

Fix
    Do not catch: let the rank fail, and mend the data. Where skipping is wanted, decide together: all-reduce a flag
    after the forward, and skip on all ranks.

Example
    twins/nothing_swallowed: a broken sample raises in the forward of one rank, and the loop goes on with `continue`.
"""

from collections.abc import Iterable, Iterator

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.state import ended, finished, number_of, place
from lockstep.trace.events import Backward, Batch, Event, Forward, Raised, Step
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS121"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100", "LS105")

# What fails in a collective is mostly the end of another rank. A file that cannot be loaded may well be expected.
_THROUGH = ("forward", "backward", "step", "batch")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first exception that a rank survived and that not all others survived at the same step and place.

    First is the earliest step, not the lowest rank: a rank that is short of a step leaves early, and another may catch
    that.
    """
    caught = [tuple(_caught(rank)) for rank in trace.ranks]
    alone = [
        (rank, raised, follow)
        for rank, mine in zip(trace.ranks, caught, strict=True)
        for raised, follow in mine
        if not all(any(_same(raised, other) for other, _ in others) for others in caught)
    ]
    if alone:
        yield _finding(*min(alone, key=lambda one: one[1].step))


def _caught(rank: RankTrace) -> Iterator[tuple[Raised, Event]]:
    """Exceptions after which training went on (and how), or after which the rank ended as if all was well."""
    for index, event in enumerate(rank.events):
        if not isinstance(event, Raised) or event.through not in _THROUGH:
            continue
        later = rank.events[index + 1 :]
        follow = next((one for one in later if isinstance(one, Batch | Forward | Backward | Step)), None)
        if follow is not None:
            yield event, follow
        elif rank.end is not None and finished(rank):
            yield event, rank.end


def _same(one: Raised, other: Raised) -> bool:
    return (one.step, one.at, one.through) == (other.step, other.at, other.through)


def _finding(rank: RankTrace, raised: Raised, follow: Event) -> Finding:
    error = raised.error.splitlines()[0][:200] if raised.error else "an exception"
    went_on = follow is not rank.end
    deed = "went on training" if went_on else "ended without an error"
    return Finding(
        CODE,
        Severity.ERROR,
        f"after {number_of(raised.step, 'step')} rank {rank.rank} caught an error of its {raised.through} and {deed}: "
        f"{error}.",
        "an error on one rank ends the training on all, or all ranks skip the step together",
        "do not catch it; or all-reduce a flag after the forward, and skip on all ranks",
        (
            Witness(f"raised in the {raised.through}: {error}", rank.rank, raised.step, place(raised)),
            Witness(deed, rank.rank, follow.step, place(follow)) if went_on else ended(rank, deed),
        ),
    )
