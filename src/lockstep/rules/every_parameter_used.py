"""Every parameter that the wrapper waits for gets a gradient in every step.

What must hold
    In every backward, on every rank, each parameter that required a gradient at the wrap gets one; or the wrapper was
    told otherwise with `find_unused_parameters=True`.

Why
    The wrapper averages gradients in buckets, a bucket when all its parameters are ready. One that gets no gradient
    keeps its bucket open: *used* parameters of the same bucket are not averaged in that step either.

How it shows
    The step goes through with gradients that differ; only the next forward raises "Expected to have finished reduction
    in the prior iteration". Where the error is caught around the step, ranks diverge for ever. Typical are a head that
    only some tasks use, a branch that depends on the batch, a layer that is built and never called.

Fix
    Remove what is never used. Else `DistributedDataParallel(model, find_unused_parameters=True)`, or use everything and
    add `0 * output.sum()` of what does not count to the loss.

Example
    twins/every_parameter_used: every other step leaves a head out.
"""

from collections.abc import Iterable, Iterator, Sequence

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.gradients import Unequal, complaints, has_group, replaced, without_gradient
from lockstep.rules.evidence.reducer import Cause
from lockstep.rules.evidence.telling import names, told, witness
from lockstep.trace.trace import Trace

CODE = "LS105"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)

_MUST = "each parameter that the wrapper knows gets a gradient in every backward, on every rank"
_NEXT = "remove what is not used, or give DistributedDataParallel find_unused_parameters=True"


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step that left a parameter out, or the exception that the next forward raised."""
    found = list(told(trace, Cause.UNUSED, CODE, lambda first: _say(trace, first)))
    return found or (_complained(trace) if has_group(trace) else ())


def _say(trace: Trace, first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    model = first.witness.held[first.keys[0]].wrapped
    clues = [
        witness(f"no gradient for {names(one, missing)}", one.rank, one.stepped, one.stepped.number)
        for one in first.before
        if (missing := without_gradient(one, model))
    ]
    raised = [witness(f"raised: {event.error[:80]}", one.rank, event) for one, event in list(complaints(trace))[:1]]
    wrap = witness("wrapped here without find_unused_parameters", first.witness.rank, first.witness.wraps[model])
    lead = "a parameter that the wrapper waits for got no gradient, and its bucket was not averaged"
    return lead, _MUST, _NEXT, (*clues, *raised, wrap)


def _complained(trace: Trace) -> Iterator[Finding]:
    for one, event in complaints(trace):
        if not any(replaced(one, model) for model in one.wraps):
            seen = f"the forward of step {event.step} was refused: a parameter had got no gradient in the step before."
            clues = [witness(f"raised: {event.error[:80]}", one.rank, event)]
            clues += [witness("wrapped here", one.rank, wrap) for wrap in one.wraps.values() if not wrap.find_unused]
            yield Finding(CODE, Severity.ERROR, seen, _MUST, _NEXT, tuple(clues))
            return
