"""A file is read after it has been written, on every rank.

What must hold
    Where one rank writes a file and another reads it, a collective stands between: the writer enters it after the
    writing, the reader leaves it before the reading. The same holds for removing a file that others read.

Why
    Ranks do not run at the same speed. A rank that did not save arrives first, and finds no file, half a file, or the
    one of last time.

How it shows
    `FileNotFoundError` or `unexpected EOF` on any rank but the first, now and then. Worse where an older file has the
    same name: that rank goes on with old weights, and nothing is said.

Fix
    `dist.barrier()` after the writing and before the reading, on all ranks, outside of `if rank == 0:`.

Example
    twins/read_after_written: rank 0 saves the last weights, and all ranks load them at once.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence import files
from lockstep.rules.evidence.precedence import Precedence
from lockstep.trace.trace import Trace

CODE = "LS302"
LAW = Law.ONCE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that writes what another rank may be reading."""
    written = {path: list(touches) for path, touches in files.writes(trace).items()}
    readings = files.reads(trace)
    lone = {path: touches for path, touches in written.items() if len({one.rank for one in touches}) == 1}
    pairs = [(path, touches, readings[path]) for path, touches in lone.items() if path in readings]
    for path, touches in files.removals(trace).items():
        below = [
            one for name, those in readings.items() if name == path or name.startswith(path + "/") for one in those
        ]
        removers = {one.rank for one in touches}
        pairs += [(path, touches, below)] if len(removers) == 1 and below else []
    if not pairs or files.locked(trace):
        return
    order = Precedence(trace)
    found = [(path, race) for path, touches, those in pairs if (race := _race(touches, those, order))]
    for together in files.by_line(found):
        yield _finding(trace, [path for path, _ in together], together[0][1])


def _race(touches: Sequence[files.Touch], readings: Sequence[files.Touch], order: Precedence) -> list[files.Touch]:
    """A writing, and for each other rank a reading that has no order with it."""
    for touch in touches:
        others = {one.rank: one for one in readings if one.rank != touch.rank and order.together(touch, one)}
        if others:
            return [touch, *(others[rank] for rank in sorted(others))]
    return []


def _finding(trace: Trace, paths: Sequence[str], touches: Sequence[files.Touch]) -> Finding:
    first, readers = touches[0], touches[1:]
    name = files.named(trace, paths)
    removed = first.event.op == "remove"
    does = f"rank {first.rank} {'removes' if removed else 'writes'} {name}"
    others = f"{files.ranks_of(readers)} {'read' if len(readers) > 1 else 'reads'} it"
    return Finding(
        CODE,
        Severity.ERROR,
        f"{does}, and {others} with no collective in between.",
        "a collective stands between the writing of a file on one rank and its reading on another",
        f"put `dist.barrier()` on all ranks {'before the removal' if removed else 'between the two'}",
        tuple(touch.witness(trace) for touch in touches),
    )
