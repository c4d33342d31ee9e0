"""Every parameter that the optimizer trains belongs to a wrapped model.

What must hold
    Each parameter that an optimizer holds is in a module that is wrapped, or its gradient is reduced by hand.

Why
    A wrapper averages the gradients of its own model. A loss with parameters, a second network or a free temperature
    beside it is trained by each rank on its own share.

How it shows
    Nothing stops. The wrapped model stays equal on all ranks, the rest drifts apart, and with it the loss that each
    rank minimises. Losses for metric learning (ArcFace, proxies) are the common case.

Fix
    Wrap it too, or put it inside of the wrapped model so that the wrapper's forward computes the loss.

Example
    twins/all_trained_wrapped: a criterion with a learned scale that nobody wrapped.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Witness
from lockstep.rules.evidence.gradients import Unequal
from lockstep.rules.evidence.reducer import Cause
from lockstep.rules.evidence.telling import names, told, witness
from lockstep.trace.trace import Trace

CODE = "LS107"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step with gradients of parameters that no wrapper knows."""
    return told(trace, Cause.UNWRAPPED, CODE, _say)


def _say(first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    one = first.witness
    clues = (
        witness(f"trains {names(one, first.keys)}", one.rank, one.optimizer, one.stepped.number),
        *(witness("what is wrapped is wrapped here", one.rank, wrap) for wrap in one.wraps.values()),
    )
    must = "each parameter of an optimizer belongs to a wrapped model, or is reduced by hand"
    next_step = "wrap the module that has these parameters too, or make it a part of the wrapped model"
    return "the optimizer trains parameters that are in no wrapped model", must, next_step, clues
