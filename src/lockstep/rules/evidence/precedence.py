"""Which moments of two ranks have an order: what one did before a collective is over when another has left it."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lockstep.trace.events import Backward, Collective, Event, Group, Wrap
from lockstep.trace.trace import RankTrace, Trace

_FROM_ONE = ("broadcast", "broadcast_object_list", "scatter", "scatter_object_list")
_TO_ONE = ("reduce", "gather", "gather_object")
_PAIRWISE = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")


class Moment(Protocol):
    """An event of a rank, by its place among the rank's events."""

    @property
    def rank(self) -> int:
        """Whose event it is."""

    @property
    def index(self) -> int:
        """Among the events of that rank."""


@dataclass(frozen=True)
class _Meeting:
    """Ranks meet. key: what and the how-manieth of it, the same on all. source, target: of a one-sided one."""

    index: int
    key: tuple[object, ...]
    ranks: tuple[int, ...]
    source: int | None = None
    target: int | None = None
    time: float = 0.0


class Precedence:
    """Vector clocks over the collectives that a trace shows, and the backwards that reduce gradients."""

    def __init__(self, trace: Trace) -> None:
        self._known = not any(one.op in _PAIRWISE for rank in trace.each(Collective) for one in rank)
        self._meetings = {rank.rank: tuple(_meetings(rank, trace)) for rank in trace.ranks}
        self._indices = {rank: [one.index for one in meetings] for rank, meetings in self._meetings.items()}
        # clocks[rank][n]: after its n-th meeting, how many meetings of each rank it knows to have been entered.
        self._clocks: dict[int, list[dict[int, int]]] = {rank: [{}] for rank in self._meetings}
        if self._known:
            self._replay()

    def before(self, first: Moment, second: Moment) -> bool:
        """Whether `first` was over before `second` began, whatever the speed of the ranks."""
        if first.rank == second.rank:
            return first.index < second.index
        met = bisect_left(self._indices[second.rank], second.index)
        entered = self._clocks[second.rank][met].get(first.rank, 0)
        return bisect_left(self._indices[first.rank], first.index) < entered

    def together(self, first: Moment, second: Moment) -> bool:
        """Whether nothing orders two moments. False where ranks send to each other, which is not followed here."""
        return self._known and not self.before(first, second) and not self.before(second, first)

    def _replay(self) -> None:
        while waiting := self._next():
            # Where the ranks do not meet (the run was cut, or they went different ways) the earliest goes on alone.
            met = next((one for one in waiting.values() if self._all_there(one, waiting)), None)
            if met is not None:
                self._meet([rank for rank in met.ranks if rank in waiting], met)
            else:
                alone = min(waiting, key=lambda rank: waiting[rank].time)
                self._meet([alone], waiting[alone])

    def _next(self) -> dict[int, _Meeting]:
        return {
            rank: meetings[len(self._clocks[rank]) - 1]
            for rank, meetings in self._meetings.items()
            if len(self._clocks[rank]) <= len(meetings)
        }

    def _all_there(self, meeting: _Meeting, waiting: Mapping[int, _Meeting]) -> bool:
        ranks = [rank for rank in meeting.ranks if rank in self._meetings]
        return all(rank in waiting and waiting[rank].key == meeting.key for rank in ranks)

    def _meet(self, ranks: Sequence[int], meeting: _Meeting) -> None:
        entered = {rank: {**self._clocks[rank][-1], rank: len(self._clocks[rank])} for rank in ranks}
        for rank in ranks:
            heard: Sequence[int] = ranks if meeting.source is None else [meeting.source]
            if meeting.target not in (None, rank):
                heard = []
            clock = dict(entered[rank])
            for other in heard:
                for key, value in entered.get(other, {}).items():
                    clock[key] = max(clock.get(key, 0), value)
            self._clocks[rank].append(clock)


def _meetings(rank: RankTrace, trace: Trace) -> Iterator[_Meeting]:
    everyone = tuple(one.rank for one in trace.ranks)
    counts: dict[tuple[object, ...], int] = {}
    for index, event in enumerate(rank.events):
        found = _meeting(event, everyone)
        if found is not None:
            what, ranks, source, target = found
            counts[what] = counts.get(what, 0) + 1
            yield _Meeting(index, (*what, counts[what]), ranks, source, target, event.time)


def _meeting(
    event: Event, everyone: tuple[int, ...]
) -> tuple[tuple[object, ...], tuple[int, ...], int | None, int | None] | None:
    match event:
        case Collective():
            ranks = event.ranks or everyone
            source = event.src if event.op in _FROM_ONE else None
            target = event.src if event.op in _TO_ONE else None
            return ("collective", ranks), ranks, source, target
        case Backward() if any(event.flags.values()):
            return ("backward",), everyone, None, None
        case Wrap() if event.group_size == len(everyone):
            return ("wrap",), everyone, None, None
        case Group(what="init" | "new"):
            return ("group", event.what), everyone, None, None
    return None
