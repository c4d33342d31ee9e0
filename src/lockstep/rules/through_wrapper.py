"""Training goes through the wrapper, never around it.

What must hold
    The forward whose loss is differentiated is a call of the wrapper that `DistributedDataParallel(model)` returned.

Why
    The call of the wrapper prepares the averaging that the next backward carries out. A call of the inner model, of one
    of its modules or of a method of its own prepares nothing: backward fills `.grad` on each rank from its own share.
    After a call of the wrapper in gradient mode that no backward followed, a call of the inner model is averaged after
    all, which is why a test of one step may look right.

How it shows
    Nothing stops. Every rank trains a model of its own, on its share of the samples; the checkpoint is rank 0's.
    Typical are the old name used in the loop (`model` beside `ddp_model`), `ddp.module.loss(x)`, a helper that unwraps,
    and a part of the model that was taken out before the wrap.

Fix
    Call the wrapper. Give a method such as `loss` to `forward`, so that the wrapper can be called. `.module` is for
    saving and for evaluation.

Example
    twins/through_wrapper: the loop calls `model(x)`; the wrapper is `net`.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Witness
from lockstep.rules.evidence.gradients import Unequal
from lockstep.rules.evidence.reducer import Cause
from lockstep.rules.evidence.telling import told, witness
from lockstep.trace.trace import Trace

CODE = "LS101"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step whose gradients differ because its forward went around the wrapper."""
    return told(trace, Cause.BYPASSED, CODE, _say)


def _say(first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    one = first.witness
    model = one.held[first.keys[0]].wrapped
    local = one.local[model]
    clues = (
        witness("calls the inner model here", one.rank, local.earlier),
        witness("this backward is not averaged", one.rank, local.backward),
        witness("the wrapper was built here", one.rank, one.wraps[model]),
    )
    must = "the forward before a backward is a call of the wrapper"
    return "the inner model was called, not its wrapper", must, "call the wrapper in the training loop", clues
