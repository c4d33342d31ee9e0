"""A plateau scheduler is given a value of all ranks.

What must hold
    `ReduceLROnPlateau.step` gets the same metric on every rank.

Why
    It decides by comparing numbers. Given the loss of a rank's own share, ranks decide for themselves: one lowers its
    learning rate an epoch before the others, and from there on their weights differ.

How it shows
    Nothing stops. Rates agree for many epochs and part at the first plateau. Even before that the rate follows a
    share of the data instead of all.

Fix
    Sum the loss and the number of samples over all ranks (`all_reduce`) and step the scheduler with the quotient.

Example
    twins/plateau_on_global_value: the scheduler is stepped with the local mean, one line before it is reduced.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.state import both_sides
from lockstep.trace.events import Schedule
from lockstep.trace.trace import Trace

CODE = "LS406"
LAW = Law.SCALE
NEED = 2
AFTER = ("LS100",)

# Ranks that each evaluate everything may add up in another order: rounding, not another value.
_ROUNDING = 1e-5


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step of each plateau scheduler at which ranks gave it different values."""
    over: set[int] = set()
    for steps in _same(trace):
        if steps[0].schedule not in over and _differ([step.metric for step in steps]):
            over.add(steps[0].schedule)
            yield _finding(trace, steps)


def _finding(trace: Trace, steps: Sequence[Schedule]) -> Finding:
    given = [f"{step.metric:.6g}" for step in steps]
    values = ", ".join(f"{value} on rank {rank.rank}" for rank, value in zip(trace.ranks, given, strict=True))
    return Finding(
        CODE,
        Severity.ERROR,
        f"{steps[0].kind} was given {values} in its step {steps[0].count}.",
        "a plateau scheduler is given the same value on every rank, of the data of all ranks",
        "all-reduce the sum and the number of samples first, and step the scheduler with their quotient",
        both_sides(trace, steps, lambda index: f"given {given[index]}"),
    )


def _same(trace: Trace) -> Iterator[tuple[Schedule, ...]]:
    made = [{(step.schedule, step.count): step for step in steps} for steps in trace.each(Schedule)]
    for key in made[0]:
        if all(key in others for others in made):
            yield tuple(steps[key] for steps in made)


def _differ(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return False
    if any(map(math.isnan, known)):
        return not all(map(math.isnan, known))
    return not math.isclose(min(known), max(known), rel_tol=_ROUNDING, abs_tol=1e-12)
