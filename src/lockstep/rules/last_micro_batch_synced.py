"""The last micro-batch before a step is synchronised.

What must hold
    With gradient accumulation, the forward and the backward of the micro-batch before each `optimizer.step()` run
    outside of `no_sync`, with `require_backward_grad_sync` on.

Why
    Under `no_sync` gradients only accumulate on their rank. The averaging happens in the backward of the first
    micro-batch that is not under it, for all that has been accumulated. The wrapper decides at the *forward*: a flag
    that is set between forward and backward comes too late.

How it shows
    Nothing stops. Weights of ranks drift apart, and the saved ones are worse than they should be. Typical are the flag
    set after the forward, a condition that is off by one, an epoch whose number of batches is not a multiple of the
    accumulation (the step on the rest uses what was never averaged), and `no_sync` around all micro-batches.

Fix
    Decide before the forward: `with nullcontext() if last else net.no_sync():` around forward and backward, where
    `last` is true for the last micro-batch of the step and for the last one of the epoch.

Example
    twins/last_micro_batch_synced: `require_backward_grad_sync` is set after the forward.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Witness
from lockstep.rules.evidence.gradients import Unequal
from lockstep.rules.evidence.reducer import Cause
from lockstep.rules.evidence.telling import told, witness
from lockstep.trace.trace import Trace

CODE = "LS103"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step whose gradients differ because its last micro-batch was not synchronised."""
    return told(trace, Cause.NOT_SYNCED, CODE, _say)


def _say(first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    one = first.witness
    model = one.held[first.keys[0]].wrapped
    local = one.local[model]
    late = local.backward.flags.get(str(model), False)
    clues = (
        witness("this forward ran with synchronisation off", one.rank, local.earlier),
        witness(f"its backward, with the flag {'on again: too late' if late else 'off'}", one.rank, local.backward),
    )
    lead = "synchronisation was off in the forward of the last micro-batch before the step"
    if late:
        lead += " and only switched on after it"
    must = "the forward and the backward of the last micro-batch before a step run outside of no_sync"
    return (
        lead,
        must,
        "decide before the forward whether a micro-batch is the last one, also at the end of an epoch",
        clues,
    )
