"""All ranks call the same collectives in the same order.

What must hold
    The ranks of a group make the same calls of `all_reduce`, `barrier`, `broadcast` and so on: as many, in one order,
    with the same operation, number of elements, type and source.

Why
    A collective has no name. The n-th call of one rank meets the n-th call of the others, whatever it was meant for. A
    rank that makes one call more, or fewer, shifts all that follow: sums of the wrong things, or ranks that wait for
    ever.

How it shows
    A hang without a message, an error minutes later ("connection closed by peer", a timeout), an abort, or plain wrong
    numbers. Common causes: a collective under `if rank == 0`, a `return` or `continue` that depends on the rank's own
    data before it, an early stop on one rank, a loop over something that ranks hold in different orders.

Fix
    Move the call out of the branch, so that every rank makes it. Where data decides, agree first: all-reduce the flag,
    then branch on the result.

Example
    twins/same_collectives: the mean loss is reduced under `if rank == 0`.
"""

from collections.abc import Iterable

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.alignment import Mismatch, mismatches, passed
from lockstep.rules.evidence.state import ended, place
from lockstep.trace.events import Collective, Event
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS113"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100", "LS105", "LS114", "LS121", "LS209")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The earliest mismatch: those that follow are mostly its consequences."""
    found = min(mismatches(trace), key=lambda one: one.when, default=None)
    if found is None:
        return
    one, other = trace.ranks[found.one], trace.ranks[found.other]
    group = f" in the group of ranks {', '.join(map(str, found.ranks))}" if found.ranks else ""
    first, second = (_call(call, rank) for call, rank in ((found.first, one), (found.second, other)))
    more = {
        "kind": "",
        "count": f"; they made {found.counts[0]} and {found.counts[1]} calls",
        "order": ", from lines that they reach in another order",
    }[found.why]
    yield Finding(
        CODE,
        Severity.ERROR,
        f"collective {found.index}{group}: rank {one.rank} calls {first}, rank {other.rank} {second}{more}.",
        "all ranks of a group call the same collectives in the same order",
        _NEXT[found.why],
        (_side(found, one, other, found.first, found.second), _side(found, other, one, found.second, found.first)),
    )


_NEXT = {
    "kind": "bring the calls into one order on all ranks, with tensors of one size and type",
    "count": "let every rank make the call: move it out of the branch, or agree on the branch first",
    "order": "bring the calls into one order on all ranks",
}


def _call(call: Collective | None, rank: RankTrace) -> str:
    if call is None:
        return "makes no such call"
    size = f" of {'x'.join(map(str, call.shape)) or 'one'} {call.dtype}" if call.dtype else ""
    reduce = f" ({call.reduce})" if call.reduce else ""
    source = f" with rank {call.src}" if call.src is not None else ""
    return f"{call.op}{reduce}{size}{source}"


def _side(
    found: Mismatch, rank: RankTrace, peer: RankTrace, call: Collective | None, met: Collective | None
) -> Witness:
    if call is not None:
        waits = "" if call.done else ", and it never returned"
        return Witness(f"{_call(call, rank)} as collective {found.index}{waits}", rank.rank, call.step, place(call))
    beyond: Event | None = passed(rank, peer, met) if met is not None else None
    if beyond is not None:
        words = f"went on to {type(beyond).__name__.lower()} without it"
        return Witness(words, rank.rank, beyond.step, place(beyond))
    return ended(rank, "came to its end without it")
