"""All ranks step with the same learning rate.

What must hold
    At every optimizer step each parameter group has the same learning rate on every rank.

Why
    Ranks share the gradient. Where one multiplies it by another rate, its weights go another way, and from there on the
    ranks hold different models.

How it shows
    Nothing stops. The log of rank 0 shows the schedule that was meant; the other ranks train with a stale rate. Common
    causes are a scheduler that only rank 0 steps, and settings that only rank 0 has read.

Fix
    Every rank has its own scheduler: step it on all ranks, outside of `if rank == 0`.

Example
    twins/same_lr: `scheduler.step()` stands under `if rank == 0`.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.state import both_sides, number_of, place, same_steps
from lockstep.trace.events import Schedule, Step
from lockstep.trace.trace import Trace

CODE = "LS119"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100", "LS406")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step of each optimizer that ranks made with different rates."""
    over: set[int] = set()
    for steps in same_steps(trace):
        if steps[0].optimizer not in over and len({step.lr for step in steps}) > 1:
            over.add(steps[0].optimizer)
            yield _finding(trace, steps)


def _finding(trace: Trace, steps: Sequence[Step]) -> Finding:
    rates = ", ".join(f"{_rates(step)} on rank {rank.rank}" for rank, step in zip(trace.ranks, steps, strict=True))
    counts = [
        sum(1 for event in rank.of(Schedule) if event.step <= step.step)
        for rank, step in zip(trace.ranks, steps, strict=True)
    ]
    uneven = len(set(counts)) > 1
    next_step = "step the scheduler on every rank" if uneven else "give every rank the same learning rate and schedule"

    def say(index: int) -> str:
        stepped = f", after {number_of(counts[index], 'step')} of its schedulers" if uneven else ""
        return f"step {steps[index].number} with {_rates(steps[index])}{stepped}"

    return Finding(
        CODE,
        Severity.ERROR,
        f"at step {steps[0].number} the learning rate is {rates}.",
        "at every step each parameter group has the same learning rate on every rank",
        next_step,
        (*_schedulers(trace, steps), *both_sides(trace, steps, say)),
    )


def _schedulers(trace: Trace, steps: Sequence[Step]) -> tuple[Witness, ...]:
    """Where a scheduler was stepped that another rank did not step."""
    last = [
        [event for event in rank.of(Schedule) if event.step <= step.step]
        for rank, step in zip(trace.ranks, steps, strict=True)
    ]
    most = max(len(events) for events in last)
    if all(len(events) == most for events in last):
        return ()
    return tuple(
        Witness(f"stepped its {events[-1].kind} here", rank.rank, events[-1].step, place(events[-1]))
        for rank, events in zip(trace.ranks, last, strict=True)
        if len(events) == most
    )


def _rates(step: Step) -> str:
    return " and ".join(f"{rate:g}" for rate in dict.fromkeys(step.lr)) or "none"
