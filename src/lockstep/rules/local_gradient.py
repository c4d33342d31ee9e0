"""Gradients of a wrapped model come from `backward`, not from `autograd.grad`.

What must hold
    The gradients that a step uses were accumulated by `backward` through the wrapper, or reduced by hand.

Why
    The wrapper averages in hooks that run when `backward` accumulates into `.grad`. `torch.autograd.grad` returns the
    gradients and accumulates nothing, so no hook runs: they are those of this rank's share.

How it shows
    Nothing stops. Weights of ranks drift apart, or, for a penalty built from such gradients, differ by what it adds.

Fix
    Call `backward`. Where gradients are needed as values, reduce them: `dist.all_reduce(gradient)` for each, divided
    by the number of ranks.

Example
    twins/local_gradient: `.grad` is filled from `torch.autograd.grad`.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Witness
from lockstep.rules.evidence.gradients import Unequal
from lockstep.rules.evidence.reducer import Cause
from lockstep.rules.evidence.telling import told, witness
from lockstep.trace.trace import Trace

CODE = "LS108"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step whose gradients differ because they came from `autograd.grad`."""
    return told(trace, Cause.LOCAL_CALL, CODE, _say)


def _say(first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    one = first.witness
    model = one.held[first.keys[0]].wrapped
    call = next(call for call in one.calls if call.model == model)
    clues = (witness(f"autograd.grad of {len(call.names)} parameters of the wrapped model", one.rank, call),)
    must = "gradients of a wrapped model come from backward, or are reduced by hand"
    return "the step uses what torch.autograd.grad returned", must, "call backward, or reduce these gradients", clues
