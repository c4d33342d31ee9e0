"""Ranks that began with the same weights keep the same weights.

What must hold
    After every step each parameter has the same value on every rank.

Why
    There is one model, of which each rank holds a copy. Nothing checks the copies: DistributedDataParallel averages
    gradients, it does not compare weights. Once the copies differ, gradients are those of another model, and the
    checkpoint is one copy of several.

How it shows
    Nothing stops. Metrics of ranks drift apart, and a run that is resumed from rank 0's checkpoint goes on differently.
    Whatever changes weights outside of the averaged gradient can do it: clipping by what the rank's own batch holds,
    noise, an optimizer state that only rank 0 has loaded. This rule speaks only where no other rule names the cause.

Fix
    Change weights by what all ranks share: reduce the value first, draw from a generator with the same seed, load the
    optimizer's state on every rank.

Example
    twins/same_parameters: weights are clipped to the largest input of the rank's own batch.
"""

from collections.abc import Iterable, Mapping, Sequence

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.averaging import parameters_averaged
from lockstep.rules.evidence.state import Held, both_sides, differing, replicated, same_steps, titles
from lockstep.trace.events import Optimizer, Step
from lockstep.trace.trace import Trace

CODE = "LS112"
LAW = Law.SAME
NEED = 2
AFTER = (
    *("LS100", "LS101", "LS102", "LS103", "LS104", "LS105", "LS106", "LS107", "LS108", "LS109", "LS110", "LS111"),
    *("LS113", "LS114", "LS115", "LS118", "LS119", "LS121", "LS209", "LS406", "LS407"),
)

_MUST = "after every step each parameter has the same value on every rank"


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step at which ranks that agreed so far no longer do, for each optimizer."""
    parameters = replicated(trace)
    agreed: dict[int, tuple[Step, ...]] = {}
    over: set[int] = set()
    for steps in same_steps(trace):
        number = steps[0].optimizer
        mine = parameters.get(number, {})
        if number in over:
            continue
        begun, ended = (differing(sides, tuple(mine)) for sides in zip(*map(_states, steps), strict=True))
        if begun or ended:
            over.add(number)
            if _averaged(trace, number, ended or begun):
                continue
            if steps[0].number or not begun:  # what differs at the start is another rule's
                yield _drift(trace, steps, agreed.get(number), begun, ended, mine)
        agreed[number] = steps


def _averaged(trace: Trace, number: int, keys: Sequence[str]) -> bool:
    """Local SGD: ranks part on purpose and are averaged every few steps."""
    told = next((event for event in trace.ranks[0].of(Optimizer) if event.optimizer == number), None)
    return told is not None and parameters_averaged(trace, told, keys)


def _states(step: Step) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return step.before, step.after


def _drift(
    trace: Trace,
    steps: Sequence[Step],
    last: Sequence[Step] | None,
    begun: Sequence[str],
    ended: Sequence[str],
    mine: Mapping[str, Held],
) -> Finding:
    keys = begun or ended
    first = mine[keys[0]].title
    digests = [(step.before if begun else step.after)[keys[0]] for step in steps]
    when = (
        f"between step {steps[0].number - 1} and step {steps[0].number}" if begun else f"after step {steps[0].number}"
    )
    seen = f"{when}, {titles(keys, mine)} differ between ranks: {_reason(steps, last, begun, tuple(mine))}"
    moment = "before" if begun else "after"
    next_step = "look for what changes weights, or the optimizer's state, by something that only this rank has"
    sides = both_sides(trace, steps, lambda index: f"{first} was {digests[index]} {moment} this step")
    return Finding(CODE, Severity.ERROR, f"{seen}.", _MUST, next_step, sides)


def _reason(steps: Sequence[Step], last: Sequence[Step] | None, begun: Sequence[str], keys: Sequence[str]) -> str:
    if not begun and differing([step.grads for step in steps], keys):
        return "the gradients of this step differed"
    if begun:
        return "they were changed outside of the optimizer"
    if len({step.lr for step in steps}) > 1:
        return "the learning rates differed"
    if any(step.before for step in steps):
        return "gradients and learning rates were equal, so the optimizer's own state or settings differ"
    since = f" since step {last[0].number}" if last else ""
    return f"gradients and learning rates were equal, so weights or the optimizer's state were changed by hand{since}"
