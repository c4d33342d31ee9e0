"""What `reduce` gives is read at its destination only.

What must hold
    After `dist.reduce(tensor, dst=0)` only rank 0 uses the tensor.

Why
    On the other ranks the tensor holds whatever the algorithm left in it: the rank's own value, or a sum over some of
    the ranks. Which it is depends on the backend and on the number of ranks.

How it shows
    Ranks report different results for the same metric, or decide differently because of it.

Fix
    `dist.all_reduce` where all ranks need the result; else use it under `if rank == 0:`.

Example
    twins/reduce_read_at_destination: counts are reduced to rank 0, and every rank prints them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.scale import readings
from lockstep.trace.events import Backward, Batch, Collective, Event, Output
from lockstep.trace.trace import Trace

CODE = "LS404"
LAW = Law.SCALE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that prints a reduced value off its destination."""
    over: set[str] = set()
    for calls in zip(*(_reductions(rank.events) for rank in trace.ranks), strict=False):
        target = next((index for index, rank in enumerate(trace.ranks) if rank.rank == calls[0][0].src), None)
        if target is None or len({call.at for call, _ in calls}) > 1:
            continue
        right = calls[target]
        for index, wrong in enumerate(calls):
            pair = _shown_on_both(right, wrong) if index != target else None
            if pair is not None and pair[1].at not in over:
                over.add(pair[1].at)
                yield _finding(right[0], wrong[0], trace.ranks[target].rank, trace.ranks[index].rank, pair)


def _reductions(events: Sequence[Event]) -> Iterator[tuple[Collective, list[Output]]]:
    """Each `reduce` of few values, and what was said after it and before anything new was computed."""
    for index, event in enumerate(events):
        if isinstance(event, Collective) and event.op == "reduce" and event.src is not None and event.got:
            said = []
            for later in events[index + 1 :]:
                if isinstance(later, Backward | Batch | Collective):
                    break
                if isinstance(later, Output):
                    said.append(later)
            yield event, said


def _shown_on_both(
    right: tuple[Collective, list[Output]], wrong: tuple[Collective, list[Output]]
) -> tuple[Output, Output] | None:
    """The same line, where one rank shows what was reduced and the other what was left over."""
    for there in right[1]:
        for here in wrong[1]:
            if (
                here.at == there.at
                and _shows(there, right[0].got, wrong[0].got)
                and _shows(here, wrong[0].got, right[0].got)
            ):
                return there, here
    return None


def _shows(event: Output, values: Sequence[float], others: Sequence[float]) -> bool:
    """Whether a text holds one of these values, or a quotient of two, where the other rank has another."""
    told = [float(text) for text in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", event.text)]
    for mine, theirs in zip(readings(values), readings(others), strict=True):
        off = abs(mine - theirs)
        if off > 1e-3 * abs(mine) and any(abs(number - mine) < 0.1 * off for number in told):
            return True
    return False


def _finding(right: Collective, wrong: Collective, target: int, rank: int, pair: tuple[Output, Output]) -> Finding:
    there, here = pair
    return Finding(
        CODE,
        Severity.ERROR,
        f"the result of reduce is used on rank {rank}, which is not its destination: it holds {_few(wrong.got)} there, "
        f"and {_few(right.got)} on rank {target}.",
        "what `reduce` gives is read at its destination only",
        "use `dist.all_reduce` where every rank needs the result, or read it on the destination only",
        (
            Witness(here.text[:80], rank, here.step, Place.parse(here.at)),
            Witness(there.text[:80], target, there.step, Place.parse(there.at)),
            Witness(f"reduces to rank {target}", rank, wrong.step, Place.parse(wrong.at)),
        ),
    )


def _few(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values[:3]) + (", ..." if len(values) > 3 else "")
