"""Something averages the gradients of all ranks before each step.

What must hold
    At every step all ranks use the same gradient: the model is wrapped, over a group of all ranks, or the gradients are
    reduced by hand.

Why
    A process group by itself changes nothing about training. Without a reduction every rank steps with the gradient of
    its own share.

How it shows
    Nothing stops, and the loss of each rank falls. There are as many models as ranks; the saved one has seen one share
    of the samples. A wrapper over a group of one member does the same.

Fix
    Wrap the model: `DistributedDataParallel(model)`. By hand: after the last backward and before clipping and the step,
    `dist.all_reduce(parameter.grad)` for every parameter, divided by the number of ranks.

Example
    twins/gradients_reduced: a group, a sharded loader, and no reduction.
"""

from collections.abc import Iterable, Sequence
from math import prod

from lockstep.core.finding import Finding, Law, Witness
from lockstep.rules.evidence.gradients import Unequal
from lockstep.rules.evidence.reducer import Cause
from lockstep.rules.evidence.telling import told, witness
from lockstep.trace.events import Collective
from lockstep.trace.trace import Trace

CODE = "LS102"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step with gradients that nothing has reduced."""
    return told(trace, Cause.UNREDUCED, CODE, lambda first: _say(trace, first))


def _say(trace: Trace, first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    one = first.witness
    wrap = one.wraps.get(one.held[first.keys[0]].wrapped)
    must = "all ranks step with the same, reduced gradient"
    if wrap is not None:
        clues = (witness("this wrapper's group has 1 member", one.rank, wrap),)
        lead = f"the wrapper's group has 1 member of {len(first.before)} ranks"
        return lead, must, "build the wrapper over the group of all ranks", clues
    sizes = set(one.optimizer.numel)
    reduced = [
        event
        for event in trace.ranks[0].of(Collective)
        if event.op.startswith("all_reduce") and (prod(event.shape) in sizes or prod(event.shape) >= sum(sizes))
    ]
    if not reduced:
        lead = "there is a process group, but no wrapper and no reduction of gradients"
        return lead, must, "wrap the model in DistributedDataParallel", ()
    some = len(first.keys) < len(one.optimizer.keys)
    lead = f"what is reduced by hand is not {'all of ' if some else ''}what the step uses"
    seen = witness("all_reduce of a tensor of a gradient's size", one.rank, reduced[0])
    next_step = "reduce the gradient of every parameter in place, after the last backward and before the step"
    return lead, must, next_step, (seen,)
