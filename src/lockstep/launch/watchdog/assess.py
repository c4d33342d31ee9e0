"""From what is known of all ranks to one alarm, or none. Pure: no clock, no processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.launch.watchdog.limits import Limits
from lockstep.launch.watchdog.sight import Sight
from lockstep.trace.progress import Entry, Phase, Reading

HELD_S = 1.0
"""How long a rank must be inside a collective that does not fit, where the collective is concluded and not seen."""
JOIN_S = 5.0
"""How long a rank may still wait in the making of a group for one that is done."""
LEFT_S = 2.0
"""How long a rank may still wait for one that is done: what it waits for may be on its way."""

_IN_A_STEP = ("gradients", "buffers")

Kind = Literal["stopped", "mismatch", "left", "stall", "together"]


@dataclass(frozen=True)
class Alarm:
    """Something is wrong with these ranks, the first of which is to be named.

    kind: `stopped`: by a signal; `mismatch`: ranks are in collectives that do not fit; `left`: done, while others still
    wait for it; `stall`: does not advance; `together`: every rank is in the same collective, and none comes back.
    certain: it cannot end well, so the run is ended now. sides: for a mismatch, each rank's own collective.
    """

    kind: Kind
    ranks: tuple[int, ...]
    certain: bool
    silent_s: float
    sides: tuple[tuple[int, Entry], ...] = ()


def assess(sights: Sequence[Sight], limits: Limits) -> Alarm | None:
    """The most certain alarm that the sights give reason for."""
    return stopped(sights) or _mismatch(sights, limits, HELD_S) or _left(sights, LEFT_S) or _stall(sights, limits)


def cause(sights: Sequence[Sight]) -> Alarm | None:
    """Once a rank has failed: whether the reason lies in what ranks called, or did not call."""
    return _mismatch(sights, Limits(), 0.0) or _left(sights, 0.0)


def stopped(sights: Sequence[Sight]) -> Alarm | None:
    """Ranks that a signal has stopped: certain, whatever is known of the others."""
    ranks = tuple(sight.rank for sight in sights if sight.stopped and not sight.ended)
    return Alarm("stopped", ranks, True, _silence(sights, ranks)) if ranks else None


def _mismatch(sights: Sequence[Sight], limits: Limits, held_s: float) -> Alarm | None:
    """The first collective by number in which two ranks differ."""
    if not all(sight.marks is None or sight.marks.comparable for sight in sights):
        return None
    called: dict[int, list[tuple[int, Entry]]] = {}
    for sight in sights:
        for entry in sight.marks.entries if sight.marks else ():
            called.setdefault(entry.number, []).append((sight.rank, entry))
    for number in sorted(called):
        kinds = {(entry.op, entry.about) for _, entry in called[number]}
        if len(kinds) > 1:
            sides = tuple(called[number])
            if any(entry.op in _IN_A_STEP for _, entry in sides) and not _held(sights, number, limits, held_s):
                return None
            odd = tuple(rank for rank, entry in sides if not _usual(entry, sides))
            return Alarm("mismatch", odd or (sides[0][0],), True, 0.0, sides)
    return None


def _held(sights: Sequence[Sight], number: int, limits: Limits, held_s: float) -> bool:
    """Whether a rank does not come back from its collective of this number.

    What the wrapper does inside is concluded, not seen. If all ranks came past the place where they differ, the
    conclusion was wrong, and they cannot be compared any more.
    """
    queued = [sight for sight in sights if sight.marks is not None and sight.marks.queued and not sight.ended]
    if queued and all(sight.silent_s > sight.limit_s(limits) for sight in queued):
        return True
    return any(sight.inside_number == number and (sight.ended or sight.silent_s >= held_s) for sight in sights)


def _usual(entry: Entry, sides: Sequence[tuple[int, Entry]]) -> bool:
    """Whether most ranks call the same; of two equal halves what every step does is usual, else what rank 0 calls."""
    same = sum((entry.op, entry.about) == (other.op, other.about) for _, other in sides)
    if 2 * same == len(sides):
        steps = [other for _, other in sides if other.op in _IN_A_STEP]
        first = (steps or [sides[0][1]])[0]
        return (entry.op, entry.about) == (first.op, first.about)
    return 2 * same > len(sides)


def _left(sights: Sequence[Sight], least_s: float) -> Alarm | None:
    """Ranks that are done, while others are in a collective that these have not called, and never will.

    One that takes the group down is done too: where others wait for it, its process may hang in that.
    """
    gone = [sight for sight in sights if sight.marks is not None and _is_gone(sight, sight.marks)]
    most = min((sight.marks.count for sight in gone if sight.marks is not None), default=0)
    waits = [
        sight for sight in sights if sight not in gone and _waits_beyond(sight, most) and sight.silent_s >= least_s
    ]
    if not gone or not waits:
        return None
    left = tuple(sight.rank for sight in gone if sight.marks is not None and sight.marks.count == most)
    return Alarm("left", left, True, waits[0].silent_s)


def _waits_beyond(sight: Sight, most: int) -> bool:
    """Whether it waits for a later collective than that of the number; where they are queued, it waits elsewhere."""
    if sight.marks is None or sight.done:
        return False
    if sight.marks.phase == Phase.JOIN and not sight.ended:
        return sight.silent_s >= JOIN_S  # in the making of a group, which takes all ranks
    return sight.inside_number > most or (sight.marks.queued and sight.marks.count > most)


def _is_gone(sight: Sight, marks: Reading) -> bool:
    return (sight.done and sight.ended) or (marks.phase == Phase.END and not sight.ended)


def _stall(sights: Sequence[Sight], limits: Limits) -> Alarm | None:
    alive = [sight for sight in sights if not sight.ended]
    if not alive:
        return None
    behind = culprits(alive)
    # Once a rank has done its work, another may have more to do at its end.
    least_s = limits.start_s if any(sight.done for sight in sights) else 0.0
    late = [sight for sight in behind if sight.silent_s > max(sight.limit_s(limits), least_s)]
    if not late:
        return None
    together = len(behind) == len(alive) and all(sight.inside is not None for sight in behind)
    if together and len(late) < len(behind):
        return None
    ranks = tuple(sight.rank for sight in late)
    silent = max(sight.silent_s for sight in late)
    ended = has_deadline(alive, limits) and silent > max(limits.deadline_s, late[0].limit_s(limits))
    return Alarm("together" if together and len(alive) > 1 else "stall", ranks, ended, silent)


def has_deadline(sights: Sequence[Sight], limits: Limits) -> bool:
    """Whether silence ends the run at some time: not while ranks still prepare, unless that was asked for."""
    begun = all(sight.pace_s is not None for sight in sights if not sight.ended)
    return limits.deadline_s > 0 and (begun or limits.from_start)


def culprits(alive: Sequence[Sight]) -> list[Sight]:
    """The ranks that the others wait for: those that have called the fewest collectives, one that has not begun first.

    One that is inside its last collective has been joined there by all others, so it does not wait for any of them.
    """
    unknown = [sight for sight in alive if sight.marks is None]
    if unknown:
        return unknown
    fewest = min(sight.marks.count for sight in alive if sight.marks is not None)
    behind = [sight for sight in alive if sight.marks is not None and sight.marks.count == fewest]
    # In it since all were there, not since it came: the others may have been long in coming.
    youngest = min(sight.silent_s for sight in behind)
    inside = [replace(sight, silent_s=youngest) for sight in behind if sight.inside is not None]
    return [sight for sight in behind if sight.inside is None] + inside


def _silence(sights: Sequence[Sight], ranks: Sequence[int]) -> float:
    return max((sight.silent_s for sight in sights if sight.rank in ranks), default=0.0)
