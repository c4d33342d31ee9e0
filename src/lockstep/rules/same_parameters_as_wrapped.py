"""The model has the parameters that it had when it was wrapped.

What must hold
    After the wrap no parameter is unfrozen, added, replaced or cast to another type.

Why
    The wrapper puts its hooks on the parameters that require a gradient when it is built. It never looks again. A
    parameter that joins later has no hook, and its gradient stays on its rank.

How it shows
    Unfreezing and adding are silent for ever. Replacing raises an error about unused parameters at the second step; who
    then follows the advice and sets `find_unused_parameters=True` makes it silent as well. So does `.double()`.

Fix
    Freeze, unfreeze, add, replace and cast before the wrap; where it must happen later, wrap again afterwards.

Example
    twins/same_parameters_as_wrapped: a layer is unfrozen in the second epoch.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Witness
from lockstep.rules.evidence.gradients import Unequal, replaced
from lockstep.rules.evidence.reducer import Before, Cause
from lockstep.rules.evidence.telling import told, witness
from lockstep.trace.trace import Trace

CODE = "LS106"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step with gradients that the wrapper does not know how to average."""
    return told(trace, Cause.CHANGED, CODE, _say)


def _say(first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    one = first.witness
    held = one.held[first.keys[0]]
    model = held.wrapped if held.wrapped >= 0 else held.model
    clues = (
        witness(f"wrapped here; later {_change(one, first.keys[0], model)}", one.rank, one.wraps[model]),
        witness("the optimizer's step uses it", one.rank, one.stepped, one.stepped.number),
    )
    must = "the parameters of a wrapped model stay as they were at the wrap"
    lead = f"the model was changed after its wrap ({_change(one, first.keys[0], model)})"
    return lead, must, "change the model before the wrap, or wrap it again after the change", clues


def _change(one: Before, key: str, model: int) -> str:
    held = one.held[key]
    if held.wrapped < 0:
        return f"{held.parameter} was added or replaced"
    if held.dtype != held.dtype_at_wrap:
        return f"{held.parameter} was cast from {held.dtype_at_wrap} to {held.dtype}"
    if held.changed:
        return f"{held.parameter} was unfrozen"
    return f"its parameters are no longer those that were wrapped ({', '.join(replaced(one, model)[:2])})"
