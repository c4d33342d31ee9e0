"""What the report draws: loss curves, and what each rank did around the first divergence."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import nan

from lockstep.core.finding import Place
from lockstep.core.proof import Curve, Moment, Rung
from lockstep.proof.align import views
from lockstep.proof.takes import Take
from lockstep.trace.events import Backward, Batch, Collective, Event, File, Forward, Step
from lockstep.trace.trace import RankTrace, Trace

_KINDS = {Batch: "batch", Forward: "forward", Backward: "backward", Step: "step", Collective: "collective"}
_MOST = 200


def curves(takes: Mapping[str, Take]) -> tuple[Curve, ...]:
    """The loss at each step of the first optimizer, of the reference and of the ranks on slices, else mirrored."""
    pairs = (("reference in float64", "shard"), ("reference", "mirror"))
    for reference, other in pairs:
        if reference in takes and other in takes and takes[other].trace.ranks:
            one = Curve("one process", _losses(takes[reference].trace.ranks[:1]))
            ranks = takes[other].trace.ranks
            return one, Curve(f"{len(ranks)} ranks ({other})", _losses(ranks))
    return ()


def _losses(ranks: Sequence[RankTrace]) -> tuple[float, ...]:
    """Mean over the ranks of the mean over the micro-batches of each step."""
    each = [[_loss(tuple(view.of(Backward))) for view in views(rank) if view.step.optimizer == 0] for rank in ranks]
    return tuple(sum(step) / len(step) for step in zip(*each, strict=False))


def _loss(backwards: Sequence[Backward]) -> float:
    known = [event.loss for event in backwards if event.loss is not None]
    return sum(known) / len(known) if known else nan


def timeline(trace: Trace, rungs: Sequence[Rung]) -> tuple[Moment, ...]:
    """What each rank did in the steps around the first difference, or the first finding with a step, else around 0."""
    steps = [one.step for rung in rungs for one in rung.differences]
    steps += [
        witness.step
        for rung in rungs
        for finding in rung.findings
        for witness in finding.witnesses
        if witness.step is not None
    ]
    centre = steps[0] if steps else 0
    window = range(max(centre - 1, 0), centre + 2)
    events = [event for rank in trace.ranks for event in rank.events if event.step in window]
    begin = min((event.time for event in events if type(event) in _KINDS), default=0.0)
    each = _MOST // max(trace.num_ranks, 1)
    return tuple(moment for rank in trace.ranks for moment in _moments(rank, window, begin)[:each])


def _moments(rank: RankTrace, window: range, begin: float) -> list[Moment]:
    mine = [event for event in rank.events if event.step in window and (type(event) in _KINDS or _is_save(event))]
    found = []
    for event, following in zip_longest(mine, mine[1:]):
        end = following.time if following is not None else event.time
        if isinstance(event, Collective) and event.end:
            end = event.end
        kind = "save" if isinstance(event, File) else _KINDS[type(event)]
        place = Place.parse(event.at)
        found.append(
            Moment(rank.rank, kind, event.time - begin, max(end, event.time) - begin, event.step, _text(event), place)
        )
    return found


def _is_save(event: Event) -> bool:
    return isinstance(event, File) and event.op == "save"


def _text(event: Event) -> str:
    if isinstance(event, Collective):
        return f"{event.op} {list(event.shape)}"
    if isinstance(event, Backward):
        return "backward" if event.loss is None else f"backward, loss {event.loss:.4g}"
    if isinstance(event, Forward):
        return f"forward ({event.via})"
    if isinstance(event, File):
        return f"save {event.path}"
    return type(event).__name__.lower()
