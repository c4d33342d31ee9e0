"""`no_sync` stands around the forward.

What must hold
    Where a backward runs under `no_sync`, so does the forward that it belongs to.

Why
    The wrapper decides at the forward whether the next backward is averaged. `no_sync` around backward alone changes
    nothing: every micro-batch is averaged.

How it shows
    The result is right. The time that `no_sync` was meant to save is spent all the same.

Fix
    Put the forward inside: `with net.no_sync(): loss = criterion(net(x), y); loss.backward()`.

Example
    twins/no_sync_effective: `no_sync` is around `backward` only.
"""

from collections.abc import Iterable

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.telling import witness
from lockstep.trace.events import Backward, Forward, NoSync
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS117"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """Backwards under `no_sync` that were averaged, because their forward was not under it."""
    for rank in trace.ranks:
        found = [pair for model in {event.model for event in rank.of(NoSync)} for pair in _pairs(rank, model)]
        if found:
            forward, backward, enter = found[0]
            yield Finding(
                CODE,
                Severity.NOTE,
                f"{len(found)} backward passes under no_sync were averaged all the same: the forward was outside.",
                "no_sync stands around the forward and the backward of a micro-batch",
                "move the forward into the no_sync block",
                (
                    _side("no_sync begins here", rank, enter),
                    _side("the forward, before it, has prepared the averaging", rank, forward),
                    _side("this backward is averaged", rank, backward),
                ),
            )
            return


def _side(text: str, rank: RankTrace, event: Forward | Backward | NoSync) -> Witness:
    return witness(text, rank.rank, event)


def _pairs(rank: RankTrace, model: int) -> Iterable[tuple[Forward, Backward, NoSync]]:
    """Each backward under `no_sync` whose wrapper was called outside of it, and not inside of it, before."""
    prepared: Forward | None = None
    block: NoSync | None = None
    for event in rank.of(Forward, Backward, NoSync):
        if isinstance(event, NoSync) and event.model == model:
            block = event if event.what == "enter" else None
        elif isinstance(event, Forward) and event.model == model and event.grad and event.via == "wrapper":
            prepared = event if event.sync and block is None else None
        elif isinstance(event, Backward):
            if prepared is not None and block is not None:
                yield prepared, event, block
            prepared = None
