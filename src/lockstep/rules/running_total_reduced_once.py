"""A running total is reduced once.

What must hold
    A total that goes on growing is reduced into another tensor, or once, at its end.

Why
    `all_reduce` works in place. The total then holds the sum over all ranks, on every rank; what comes next is added to
    it, and the next reduction counts everything before it N times more.

How it shows
    A metric above its maximum, a count of more samples than there are, a loss that goes to infinity: what was seen k
    reductions ago is counted N to the power of k times. In running statistics the old values outweigh all new ones.

Fix
    Move the reduction behind the loop; or reduce a copy, `shown = total.clone()`, `dist.all_reduce(shown)`.

Example
    twins/running_total_reduced_once: counts are reduced after each batch instead of after the last.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.trace.events import Collective
from lockstep.trace.trace import Trace

CODE = "LS403"
LAW = Law.SCALE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)

_LINKS = 2
"""So many times a total must have gone on from what came out of the reduction before, so that it is no chance."""


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that reduces what it has reduced before."""
    lines: dict[str, list[list[Collective]]] = defaultdict(lambda: [[] for _ in trace.ranks])
    for rank, calls in enumerate(trace.each(Collective)):
        for call in calls:
            if call.op == "all_reduce" and call.reduce == "sum" and call.given and call.got:
                lines[call.at][rank].append(call)
    for sides in lines.values():
        reduced = list(zip(*sides, strict=False))
        links = [(before, after) for before, after in pairwise(reduced) if _goes_on(before, after, trace.num_ranks)]
        if len(links) >= _LINKS:
            yield _finding(trace, links)


def _goes_on(before: Sequence[Collective], after: Sequence[Collective], num_ranks: int) -> bool:
    """Whether what goes in on every rank is what came out before, and something more."""
    for first, second in zip(before, after, strict=True):
        if first.tensor != second.tensor or len(first.given) != len(second.given):
            return False
        # Some elements may stand still (no hit in a batch), but something must have grown by the reduction itself.
        grown = all(0 < got <= given for got, given in zip(first.got, second.given, strict=True) if got or given)
        reduced = any(got > given > 0 for given, got in zip(first.given, first.got, strict=True))
        many = any(new >= num_ranks * old > 0 for old, new in zip(first.got, second.got, strict=True))
        if not (grown and reduced and many):
            return False
    return True


def _finding(trace: Trace, links: Sequence[tuple[Sequence[Collective], Sequence[Collective]]]) -> Finding:
    (before, after), again = links[0], len(links) + 1
    place = Place.parse(after[0].at)
    return Finding(
        CODE,
        Severity.ERROR,
        f"the same total is all-reduced {again} times: {_few(before[0].got)} came out on all ranks, and "
        f"{_few(after[0].given)} went in on rank {trace.ranks[0].rank} the next time, which counts it again.",
        "a total that goes on growing is reduced once, or into another tensor",
        "move the reduction behind the loop, or reduce a copy (`shown = total.clone()`)",
        tuple(
            Witness(f"{_few(before[k].got)} came out, {_few(after[k].given)} goes in", rank.rank, after[k].step, place)
            for k, rank in enumerate(trace.ranks)
        ),
    )


def _few(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values[:3]) + (", ..." if len(values) > 3 else "")
