"""All ranks scale their losses by the same number.

What must hold
    The scale of `GradScaler` is the same on every rank at every step.

Why
    DistributedDataParallel averages gradients that are still scaled. With different scales the average weighs ranks
    by them, and each rank divides it by its own: ranks step with different gradients, though everything was reduced.

How it shows
    Nothing stops. Weights of ranks drift apart from the first step on. The usual cause is a scaler state that only
    rank 0 has loaded. (Where gradients are not synchronised, one rank may see an overflow that others do not; scales
    that part in this way are a consequence, and the rules about gradients say so.)

Fix
    Give every rank the same `init_scale`, and load the saved state of the scaler on every rank.

Example
    twins/same_scale: `scaler.load_state_dict(...)` stands under `if rank == 0`.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.state import both_sides
from lockstep.trace.events import Scaler
from lockstep.trace.trace import Trace

CODE = "LS118"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first update after which scales differ."""
    for number, updates in enumerate(zip(*trace.each(Scaler), strict=False)):
        if len({update.skipped for update in updates}) > 1:
            return  # only some ranks saw an overflow: their gradients differ, and that is another rule's
        if len({update.scale for update in updates}) > 1:
            yield _finding(trace, number, updates)
            return


def _finding(trace: Trace, number: int, updates: Sequence[Scaler]) -> Finding:
    ranks = zip(trace.ranks, updates, strict=True)
    scales = ", ".join(f"{update.scale:g} on rank {rank.rank}" for rank, update in ranks)
    return Finding(
        CODE,
        Severity.ERROR,
        f"after update {number} the scale is {scales}.",
        "the scale of GradScaler is the same on every rank at every step",
        "load the saved state of the scaler on every rank, and give all the same init_scale",
        both_sides(trace, updates, lambda index: f"scale {updates[index].scale:g} from here on"),
    )
