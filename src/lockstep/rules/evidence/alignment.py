"""The collectives of ranks side by side, group by group, up to the first that do not belong together."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.rules.evidence.state import finished
from lockstep.trace.events import Backward, Collective, Event, Forward, Group, Step
from lockstep.trace.trace import RankTrace, Trace

PAIRED = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"})
"""Between two ranks: no others take part."""
_OWN_SIZES = frozenset({"scatter", "gather", "all_to_all", "all_to_all_single", "reduce_scatter"})

Key = tuple[tuple[int, ...], int]
"""A group over all ranks: its members, and which of the groups with these members it is."""


@dataclass(frozen=True)
class Mismatch:
    """Two ranks of a group that do not do the same as their `index`-th collective.

    one, other: positions of the ranks in the trace. first, second: what they called; None where a rank never did.
    counts: how many collectives each has made in this group. why: `kind`, `count` or `order`.
    """

    ranks: tuple[int, ...]
    index: int
    one: int
    other: int
    first: Collective | None
    second: Collective | None
    counts: tuple[int, int]
    why: str

    @property
    def when(self) -> float:
        """To find the earliest of several."""
        return min(one.time for one in (self.first, self.second) if one is not None)


def mismatches(trace: Trace) -> Iterator[Mismatch]:
    """The first of each group and each rank against the group's first rank."""
    made = [_by_group(rank) for rank in trace.ranks]
    everyone = tuple(rank.rank for rank in trace.ranks)
    for key in dict.fromkeys(key for groups in made for key in groups):
        members = [place for place, rank in enumerate(trace.ranks) if rank.rank in (key[0] or everyone)]
        for other in members[1:]:
            one = members[0]
            found = _first(trace, key, one, other, made[one].get(key, ()), made[other].get(key, ()))
            if found is not None:
                yield found


def _by_group(rank: RankTrace) -> dict[Key, tuple[Collective, ...]]:
    keys: dict[int, Key] = {}
    count: Counter[tuple[int, ...]] = Counter()
    made: dict[Key, list[Collective]] = {}
    for event in rank.events:
        if not isinstance(event, Group | Collective):
            continue
        if event.group == 0:
            key: Key = ((), 0)
        elif event.group in keys:
            key = keys[event.group]
        else:
            key = keys[event.group] = (event.ranks, count[event.ranks])
            count[event.ranks] += 1
        if isinstance(event, Collective) and event.op not in PAIRED:
            made.setdefault(key, []).append(event)
    return {key: tuple(events) for key, events in made.items()}


def _first(
    trace: Trace, key: Key, one: int, other: int, mine: Sequence[Collective], theirs: Sequence[Collective]
) -> Mismatch | None:
    common = min(len(mine), len(theirs))
    index = next((at for at in range(common) if signature(mine[at]) != signature(theirs[at])), common)
    why = "kind" if index < common else "count"
    if index == common and not _left_out(trace, one, other, mine, theirs):
        index, why = _swapped(mine, theirs), "order"
    if index >= max(len(mine), len(theirs)):
        return None
    here, there = ({call.at for call in calls} for calls in (mine, theirs))
    shifted = next((at for at in range(min(index, common)) if _strange(mine[at], theirs[at], here, there)), index)
    return Mismatch(
        key[0],
        shifted,
        one,
        other,
        mine[shifted] if shifted < len(mine) else None,
        theirs[shifted] if shifted < len(theirs) else None,
        (len(mine), len(theirs)),
        why,
    )


def signature(call: Collective) -> tuple[object, ...]:
    """What has to be equal for calls that belong together. The place is not: branches may call the same."""
    parts: tuple[object, ...] = (call.op, call.reduce, call.src)
    if "object" in call.op or call.op in _OWN_SIZES:
        return parts
    return *parts, math.prod(call.shape), call.dtype


def _left_out(trace: Trace, one: int, other: int, mine: Sequence[Collective], theirs: Sequence[Collective]) -> bool:
    """Whether the shorter side has really left the next one out, and was not merely cut before it."""
    if len(mine) == len(theirs):
        return False
    (longer, calls), short = ((one, mine), other) if len(mine) > len(theirs) else ((other, theirs), one)
    call = calls[min(len(mine), len(theirs))]
    return finished(trace.ranks[short]) or passed(trace.ranks[short], trace.ranks[longer], call) is not None


def passed(rank: RankTrace, caller: RankTrace, call: Event) -> Event | None:
    """The event that shows that a rank is beyond the moment of `caller`'s call: it has done more work."""
    done: Counter[str] = Counter()
    for event in caller.events:
        if event is call:
            break
        done[_work(event)] += 1
    for event in rank.events:
        work = _work(event)
        done[work] -= 1
        if work and done[work] < 0:
            return event
    return None


def _work(event: Event) -> str:
    """Kinds of work that every rank does in the same order; "" for others, as collectives of parts of the ranks."""
    match event:
        case Forward():
            return "forward" if event.training and event.grad else ""
        case Collective():
            return "collective" if event.group == 0 and event.op not in PAIRED else ""
        case Backward() | Step():
            return type(event).__name__
        case _:
            return ""


def _strange(first: Collective, second: Collective, here: set[str], there: set[str]) -> bool:
    """Two places that are no pair of branches: one of them is reached by both ranks."""
    return first.at != second.at and first.src is None and (second.at in here or first.at in there)


def _swapped(mine: Sequence[Collective], theirs: Sequence[Collective]) -> int:
    """Where ranks reach a place as often, but in another order; as far as the longer side where they do not.

    Barriers are all alike, and so are calls with a source: their turns may come from different lines.
    """
    here, there = _turns(mine), _turns(theirs)
    shared = [(here[at], there[at]) for at in here if at in there and len(here[at]) == len(there[at])]
    parted = [pair for one, other in shared for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    return min((min(pair) for pair in parted), default=max(len(mine), len(theirs)))


def _turns(calls: Sequence[Collective]) -> dict[str, list[int]]:
    turns: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        if call.src is None and "barrier" not in call.op:
            turns.setdefault(call.at, []).append(index)
    return turns
