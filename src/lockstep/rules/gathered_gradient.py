"""Gathered tensors carry their gradient back.

What must hold
    Where a loss uses the outputs of all ranks (contrastive losses), the gather between them has a gradient.

Why
    `dist.all_gather` fills plain tensors. The loss sees the others' embeddings as constants, so that nothing flows back
    to the ranks that made them; on one process every sample gets that part of its gradient.

How it shows
    Nothing stops, and the loss falls. The gradient is not the one of the same global batch on one process.

Fix
    Gather with a function that has a backward: one of `torch.distributed.nn.functional`, or an `autograd.Function`
    whose backward sums the gradients of all ranks and returns the own part. Where the gathered tensors are only looked
    at (a metric), gather `tensor.detach()`.

Example
    twins/gathered_gradient: the second views of all ranks are gathered by `dist.all_gather`.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import isclose, prod

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.trace.events import Backward, Collective, Event, Step
from lockstep.trace.trace import Trace

CODE = "LS407"
LAW = Law.SCALE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)

_GATHERS = ("all_gather", "all_gather_into_tensor", "all_gather_coalesced")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that gathers, before a backward, what requires a gradient."""
    over: set[str] = set()
    for sides in zip(*(_gathers(rank.events) for rank in trace.ranks), strict=False):
        call = sides[0][0]
        # A loss that is the same on all ranks holds nothing that only one rank has: the gradient comes by the own part.
        if call.at not in over and not _same([loss for _, loss in sides]):
            over.add(call.at)
            yield _finding(trace, [one for one, _ in sides])


def _gathers(events: Sequence[Event]) -> Iterator[tuple[Collective, float | None]]:
    """Gathers of more than one value, and the loss of the backward that came after them in the same step."""
    waiting: list[Collective] = []
    for event in events:
        if isinstance(event, Collective):
            if event.op in _GATHERS and event.grad and prod(event.shape) > 1:
                waiting.append(event)
        elif isinstance(event, Backward):
            yield from ((call, event.loss) for call in waiting)
            waiting = []
        elif isinstance(event, Step):
            waiting = []


def _same(losses: Sequence[float | None]) -> bool:
    first = losses[0]
    return first is not None and all(one is not None and isclose(one, first, rel_tol=1e-5) for one in losses)


def _finding(trace: Trace, calls: Sequence[Collective]) -> Finding:
    shape = "x".join(str(size) for size in calls[0].shape)
    return Finding(
        CODE,
        Severity.ERROR,
        f"{calls[0].op} of a tensor of {shape} that requires a gradient, before a backward: "
        f"nothing flows back to the {len(calls[0].ranks) or trace.num_ranks} ranks that made what is gathered.",
        "where a loss uses the outputs of all ranks, the gather between them has a gradient",
        "gather by a function with a backward (torch.distributed.nn.functional), or gather `tensor.detach()`"
        " where it is only looked at",
        tuple(
            Witness(f"gathers a tensor of {shape}", rank.rank, call.step, Place.parse(call.at))
            for rank, call in zip(trace.ranks, calls, strict=True)
        ),
    )
