"""The wrapper is called on all ranks, or on none.

What must hold
    Where one rank calls the model through DistributedDataParallel, every rank does.

Why
    The wrapper's forward is a collective: it broadcasts rank 0's buffers first. A rank that calls it alone sends what
    nobody receives, and from then on the next collective of the others meets the wrong partner.

How it shows
    Often not at all: after one forward without gradients the wrapper leaves out its next broadcast, and calls match
    again. Add a `barrier()` or a metric between evaluation and training, and the program hangs. With gradients enabled
    it hangs in any case. A model without buffers does not hang; it is one BatchNorm away from it.

Fix
    Evaluate with the inner module, `model.module(x)`: nothing is sent. Or evaluate on all ranks, each with a share.

Example
    twins/wrapper_on_all_ranks: rank 0 evaluates alone, through the wrapper.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.alignment import passed
from lockstep.rules.evidence.state import ended, finished, number_of, place
from lockstep.trace.events import Forward, Model, Wrap
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS114"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100",)

_Calls = dict[int, list[Forward]]
"""{position of a rank: its evaluations through the wrapper after a certain number of steps}."""


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first moment at which some ranks evaluate through a wrapper and others go on without."""
    buffers = {model.model: len(model.buffers) for model in trace.ranks[0].of(Model)}
    for wraps in zip(*trace.each(Wrap), strict=False):  # the n-th of one rank is the n-th of all
        found = _alone(trace, [wrap.model for wrap in wraps]) if wraps[0].kind == "ddp" else None
        if found is not None:
            yield _finding(trace, found, buffers.get(wraps[0].model, 0) if wraps[0].broadcast_buffers else 0)


def _alone(trace: Trace, models: Sequence[int]) -> _Calls | None:
    """The first calls that some ranks made and others, which are beyond them, did not; None for nowhere."""
    made = [_evaluations(rank, model) for rank, model in zip(trace.ranks, models, strict=True)]
    for step in sorted({step for mine in made for step in mine}):
        calls = {at: mine.get(step, []) for at, mine in enumerate(made)}
        caller = next(at for at, mine in calls.items() if mine)
        absent = [trace.ranks[at] for at, mine in calls.items() if not mine]
        if any(finished(rank) or passed(rank, trace.ranks[caller], calls[caller][0]) for rank in absent):
            return calls
    return None


def _evaluations(rank: RankTrace, model: int) -> dict[int, list[Forward]]:
    """{steps so far: calls of a model's wrapper that are no training}."""
    found: dict[int, list[Forward]] = {}
    for call in rank.of(Forward):
        if (call.model, call.via) == (model, "wrapper") and not (call.training and call.grad):
            found.setdefault(call.step, []).append(call)
    return found


def _finding(trace: Trace, calls: _Calls, buffers: int) -> Finding:
    counts = Counter({trace.ranks[at].rank: len(mine) for at, mine in calls.items()})
    callers = ", ".join(f"rank {rank} {number_of(count, 'time')}" for rank, count in counts.items() if count)
    absent = ", ".join(f"rank {rank}" for rank, count in counts.items() if not count)
    sent = f"it broadcasts {number_of(buffers, 'buffer')}" if buffers else "there are no buffers to broadcast"
    step = next(call.step for mine in calls.values() for call in mine)
    return Finding(
        CODE,
        Severity.ERROR if buffers else Severity.NOTE,
        f"after {number_of(step, 'step')} the wrapper evaluates on some ranks only: {callers}, {absent} not; {sent}.",
        "where one rank calls the wrapper, every rank does",
        "evaluate with the inner module (model.module), or on all ranks",
        _witnesses(trace, calls),
    )


def _witnesses(trace: Trace, calls: _Calls) -> tuple[Witness, ...]:
    """Who calls, then who goes on without."""
    caller, first = next((trace.ranks[at], mine[0]) for at, mine in calls.items() if mine)
    callers = [(trace.ranks[at], mine[0]) for at, mine in calls.items() if mine]
    absent = [(trace.ranks[at], passed(trace.ranks[at], caller, first)) for at, mine in calls.items() if not mine]
    mode = "with" if first.grad else "without"
    return (
        *(Witness(f"calls the wrapper {mode} gradients", rank.rank, call.step, place(call)) for rank, call in callers),
        *(
            ended(rank, "makes no such call")
            if event is None
            else Witness(_GOES_ON, rank.rank, event.step, place(event))
            for rank, event in absent
        ),
    )


_GOES_ON = "makes no such call; it goes on here"
