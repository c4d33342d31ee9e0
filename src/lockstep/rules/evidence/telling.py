"""How rules speak of gradients that differ: one finding a cause, with both sides."""

from collections.abc import Callable, Iterator, Sequence

from lockstep.core.finding import Finding, Place, Severity, Witness
from lockstep.rules.evidence.gradients import Unequal, unequal_gradients
from lockstep.rules.evidence.reducer import Before, Cause
from lockstep.trace.events import Event, Step
from lockstep.trace.trace import Trace

_SHOWN = 3


def first_of(trace: Trace, cause: Cause) -> tuple[Unequal, str] | None:
    """The first step at which gradients differ for this cause, and words for it: which gradients, in how many steps."""
    found = [one for one in unequal_gradients(trace) if one.cause is cause]
    if not found:
        return None
    first, facts = found[0], found[0].before[0].optimizer
    steps = {one.steps[0].number for one in found if one.steps[0].optimizer == facts.optimizer}
    compared = min(
        sum(one.optimizer == facts.optimizer and bool(one.after) for one in rank) for rank in trace.each(Step)
    )
    often = f"in {len(steps)} of {compared} steps, first in step {first.steps[0].number},"
    share = f"{len(first.keys)} of {len(facts.keys)} parameters" if len(facts.keys) > 1 else "the only parameter"
    return first, f"{often} the gradients of {share} differ between ranks ({names(first.before[0], first.keys)})"


def told(
    trace: Trace,
    cause: Cause,
    code: str,
    say: Callable[[Unequal], tuple[str, str, str, Sequence[Witness]]],
) -> Iterator[Finding]:
    """The finding about this cause, if there is one.

    Args:
        trace: what is judged.
        cause: of the rule.
        code: of the rule.
        say: for the first step: what happened, what must hold, what to do, and witnesses of the cause.
    """
    found = first_of(trace, cause)
    if found is not None:
        first, words = found
        lead, must, next_step, clues = say(first)
        yield Finding(code, Severity.ERROR, f"{lead}: {words}.", must, next_step, (*clues, *sides(first)))


def names(before: Before, keys: Sequence[str]) -> str:
    """Of parameters, the first few."""
    held = before.held
    shown = ", ".join(held[key].parameter for key in keys[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more"


def witness(text: str, rank: int, event: Event, number: int | None = None) -> Witness:
    """What a rank did at the place of an event."""
    return Witness(text, rank, number if number is not None else event.step, Place.parse(event.at))


def sides(unequal: Unequal) -> Iterator[Witness]:
    """The step on two ranks whose gradients differ."""
    key, mine = unequal.keys[0], unequal.witness
    own = mine.stepped.grads.get(key)
    other = next(one for one in unequal.before if one.stepped.grads.get(key) != own)
    name = mine.held[key].parameter
    for one in sorted((mine, other), key=lambda before: before.rank):
        yield witness(f"steps with {_gradient(one.stepped, key, name)}", one.rank, one.stepped, one.stepped.number)


def _gradient(step: Step, key: str, name: str) -> str:
    if key not in step.grads:
        return f"no gradient of {name}"
    norm = "" if step.norm is None else f" (norm of the whole gradient {step.norm:.6g})"
    return f"gradient {step.grads[key][:8]} of {name}{norm}"
