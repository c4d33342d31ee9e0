"""A metric is that of the whole evaluation set.

What must hold
    Where ranks evaluate a share of the set each, sums and counts are reduced across ranks before a result is printed,
    saved, or decided upon.

Why
    Rank 0 sees one N-th of the samples. What it prints is the metric of its share, which changes with the number of
    ranks, and is N times noisier than it need be in its variance.

How it shows
    Nothing stops. The number is plausible, but it is not the one of the whole set; the best checkpoint is chosen by a
    share, and ranks that decide for themselves (early stop, plateau) decide differently.

Fix
    Reduce sums and counts, then divide: `dist.all_reduce(counts)` on all ranks, then `counts[0] / counts[1]`; or use
    metrics whose state is summed across ranks (torchmetrics). A small set may be evaluated whole on every rank.

Example
    twins/whole_metric: rank 0 prints the accuracy of its own half.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.scale import TRACKERS, Evaluation, evaluations, numbers, readings, shared_out
from lockstep.trace.events import Collective, File, Output
from lockstep.trace.trace import Trace

CODE = "LS401"
LAW = Law.SCALE
NEED = 2
AFTER: tuple[str, ...] = ("LS100", "LS406")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that begins such an evaluation."""
    tracked = any(event.what in TRACKERS for rank in trace.each(Output) for event in rank)
    over: set[str] = set()
    for ranks in evaluations(trace):
        if ranks[0].first.at in over or not shared_out(trace, ranks):
            continue
        copy = _copy_reduced(ranks)
        local = not any(one.reductions for one in ranks) and (any(one.said for one in ranks) or tracked)
        if copy is not None or (local and not _kept_by_each(ranks)):
            over.add(ranks[0].first.at)
            yield _finding(ranks, copy)


def _copy_reduced(ranks: Sequence[Evaluation]) -> Collective | None:
    """A reduction of which one rank says what went into it, and nobody what came out: a copy was reduced.

    Only numbers with a point in them count, so that a count and an epoch are not taken for each other.
    """
    speakers = [one for one in ranks if any(isinstance(event, Output) for event in one.said)]
    if len(speakers) != 1:
        return None
    said = [number for event in speakers[0].said if isinstance(event, Output) for number in numbers(event.text)]
    for call in speakers[0].reductions:
        pairs = list(zip(readings(call.given), readings(call.got), strict=False))
        apart = [own for own, whole in pairs if own != int(own) and abs(own - whole) > 1e-2 * abs(own)]
        wholes = [whole / share for _, whole in pairs for share in (1, len(ranks))]
        if _among(apart, said) and not _among(wholes, said):
            return call
    return None


def _among(values: Sequence[float], said: Sequence[tuple[float, float]]) -> bool:
    return any(abs(value - number) <= error for value in values for number, error in said)


def _kept_by_each(ranks: Sequence[Evaluation]) -> bool:
    """Whether ranks write files of their own: what each found is kept, for somebody to put together later."""
    paths = [
        {event.path for event in (*one.during, *one.after) if isinstance(event, File) and event.op in ("save", "write")}
        for one in ranks
    ]
    return any(own - paths[0] for own in paths[1:])


def _finding(ranks: Sequence[Evaluation], copy: Collective | None) -> Finding:
    shares = ", ".join(f"{one.size} on rank {one.rank}" for one in ranks)
    witnesses = [
        Witness(f"evaluates {one.size} samples", one.rank, one.first.step, Place.parse(one.first.at)) for one in ranks
    ]
    for one in ranks:
        for event in one.said[:1]:
            text = event.text if isinstance(event, Output) else "uses the result"
            witnesses.append(Witness(text[:80], one.rank, event.step, Place.parse(event.at)))
    what = "no collective brings the results together"
    if copy is not None:
        what = "what is said is the result of one share: the reduced tensor was a copy"
        witnesses.append(Witness("reduces a tensor that is not used", None, copy.step, Place.parse(copy.at)))
    return Finding(
        CODE,
        Severity.ERROR,
        f"ranks evaluate shares of the set ({shares}), and {what}.",
        "sums and counts of all ranks are reduced before a result is used",
        "`dist.all_reduce` the sums and the counts on all ranks after the loop, then divide",
        tuple(witnesses),
    )
