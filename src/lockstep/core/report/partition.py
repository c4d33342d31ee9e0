"""Pictures of who read which sample: for each pass, a row a rank over the index in the data set."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lockstep.core.proof import Share
from lockstep.core.report import svg
from lockstep.core.report.svg import Figure, element, hover, label
from lockstep.core.report.words import count

_WIDTH, _LEFT, _RIGHT, _TOP = 1120.0, 96.0, 1112.0, 4.0
_BINS, _LEVELS, _PASSES, _RANKS, _NAMED = 240, 4, 8, 64, 6


@dataclass(frozen=True)
class _Reading:
    """One pass, counted. length: of the data set, or the largest index + 1. known: the length is the data set's.

    times: how often each index was read, over all ranks. owners: by how many ranks. outside: indices that do not exist.
    """

    share: Share
    length: int
    known: bool
    suspect: bool
    times: Counter[int]
    owners: Counter[int]
    outside: int

    @property
    def several(self) -> int:
        """Samples that more than one rank read."""
        return sum(owners > 1 for owners in self.owners.values())

    @property
    def repeated(self) -> int:
        """Samples that one rank alone read more than once."""
        return sum(self.times[index] > 1 for index, owners in self.owners.items() if owners == 1)

    @property
    def unread(self) -> int:
        """Samples that nobody read."""
        return self.length - len(self.times)

    @property
    def padding(self) -> int:
        """How many samples may be read twice so that all ranks have equally many."""
        equal = len({len(ids) for ids in self.share.ids}) == 1
        return len(self.share.ids) - 1 if equal and not self.unread else 0

    @property
    def wrong(self) -> bool:
        """Samples are missing, do not exist, or are read twice beyond what padding explains."""
        if not self.suspect:
            return False
        return self.unread > 0 or self.outside > 0 or self.several + self.repeated > self.padding


def figures(shares: Sequence[Share], suspect: bool = True) -> list[Figure]:
    """One for each pass; of many passes the first ones and those with overlap or gaps, and how many are left out.

    suspect: whether what looks wrong is shown as wrong. A verification may end in the middle of a pass, and then most
    samples are rightly unread; that is for the rules to judge, not for a picture.
    """
    readings = [_count(share, suspect) for share in shares]
    again = _repeats(shares)
    by_need = sorted(range(len(shares)), key=lambda place: (not readings[place].wrong, place))
    found = [_figure(readings[place], again[place]) for place in sorted(by_need[:_PASSES])]
    left = by_need[_PASSES:]
    if left:
        bad = sum(readings[place].wrong for place in left)
        said = f"{bad:,} of them with overlap or gaps." if bad else "None of them has overlap or gaps."
        found.append(Figure(count(len(left), "more pass"), said, "", signal=bad > 0))
    return found


def _repeats(shares: Sequence[Share]) -> list[str]:
    """For each pass a sentence that says whether ranks read in the order of an earlier pass; "" if not."""
    orders: dict[tuple[str, int, tuple[int, ...]], int] = {}
    found = []
    for share in shares:
        before = [orders.setdefault((share.stream, rank, ids), share.number) for rank, ids in enumerate(share.ids)]
        again = [rank for rank, number in enumerate(before) if number != share.number and share.ids[rank]]
        who = "Every rank" if len(again) == len(share.ids) else "Rank " + ", ".join(map(str, again))
        first = min((before[rank] for rank in again), default=0)
        found.append(f" {who} reads in the same order as in pass {first}." if again else "")
    return found


def _count(share: Share, suspect: bool) -> _Reading:
    highest = max((max(ids) for ids in share.ids if ids), default=-1)
    length = share.length if share.length is not None else highest + 1
    times: Counter[int] = Counter()
    owners: Counter[int] = Counter()
    outside = 0
    for ids in share.ids:
        inside = [index for index in ids if 0 <= index < length]
        outside += len(ids) - len(inside)
        times.update(inside)
        owners.update(set(inside))
    return _Reading(share, length, share.length is not None, suspect, times, owners, outside)


def _figure(reading: _Reading, again: str) -> Figure:
    ids_of_rank = reading.share.ids
    title = f"{reading.share.stream}, pass {reading.share.number}"
    said = _coverage(reading) + again
    notes = []
    if reading.length > _BINS:
        notes.append(f"A cell is about {count(round(reading.length / _BINS), 'sample')}; fuller is darker.")
    if len(ids_of_rank) > _RANKS:
        notes.append(f"The first {_RANKS} of {len(ids_of_rank)} ranks are drawn.")
    head = ("rank", "samples read", "different samples", "first in order")
    rows = tuple(
        (f"rank {rank}", f"{len(ids):,}", f"{len(set(ids)):,}", ", ".join(map(str, ids[:8])))
        for rank, ids in enumerate(ids_of_rank)
    )
    drawn = _picture(reading, f"{title}. {said}") if reading.length > 0 else ""
    return Figure(title, said, drawn, head, rows, reading.wrong, " ".join(notes))


def _coverage(reading: _Reading) -> str:
    total = count(reading.length, "sample")
    several, repeated, unread = reading.several, reading.repeated, reading.unread
    parts = []
    if several:
        parts.append(f"{several:,} read by several ranks")
    if repeated:
        parts.append(f"{repeated:,} read more than once by one rank")
    if unread:
        parts.append(f"{unread:,} read by nobody" if reading.suspect else f"{unread:,} not read in these steps")
    if reading.outside:
        parts.append(f"outside the data set: {reading.outside:,}")
    if not parts:
        return f"{total}, each read once." if reading.length else "Nothing was read."
    if 0 < several + repeated <= reading.padding:
        parts.append(f"padding to equal lengths may repeat {reading.padding:,}")
    known = "" if reading.known else " (up to the largest index read; the length is not known)"
    return f"{total}{known}: {', '.join(parts)}."


def _picture(reading: _Reading, said: str) -> str:
    drawn = reading.share.ids[:_RANKS]
    bins = min(_BINS, reading.length)
    high = 16.0 if len(drawn) <= 8 else 8.0 if len(drawn) <= 32 else 4.0
    parts = []
    for rank, ids in enumerate(drawn):
        y = _TOP + rank * (high + 2)
        parts.append(element("rect", x=_LEFT, y=y, width=_RIGHT - _LEFT, height=high, class_="lane"))
        seen = _filled(set(ids), reading.length, bins)
        note = f"rank {rank}: {count(len(ids), 'sample')}, {len(set(ids)):,} different"
        parts.append(element("g", hover(note), _cells(seen, y, high, f"rank{rank % _NAMED}")))
        if high > 8 or rank % 8 == 0:
            parts.append(label(_LEFT - 8, y + high / 2 + 4, f"rank {rank}", text_anchor="end"))
    y = _TOP + len(drawn) * (high + 2) + 6
    read = _per_bin(reading.times, reading.length, bins)
    twice = _per_bin((index for index, times in reading.times.items() if times > 1), reading.length, bins)
    unread = [size - seen for size, seen in zip(_sizes(reading.length, bins), read, strict=True)]
    kinds = ("overlap", "nobody") if reading.wrong else ("quiet", "quiet")
    for name, words, counts in ((kinds[0], "read twice", twice), (kinds[1], "unread", unread)):
        if any(counts):
            parts.append(_signal(name, f"{words}: {sum(counts):,} of {reading.length:,}", counts, y))
            kind = "signal" if reading.wrong else "quiet"
            parts.append(label(_LEFT - 8, y + 10, words, text_anchor="end", class_=kind))
            y += 16
    parts.append(_axis(reading.length, y))
    return svg.picture(_WIDTH, y + 16, said, *parts)


def _signal(name: str, said: str, counts: Sequence[int], y: float) -> str:
    """A row of its own; one sample fills its cell, so that none is overlooked."""
    back = element("rect", x=_LEFT, y=y, width=_RIGHT - _LEFT, height=12.0, class_="lane")
    return element("g", hover(said), back, _cells([_LEVELS * (one > 0) for one in counts], y, 12.0, name))


def _axis(length: int, y: float) -> str:
    scale = svg.Scale(0, length, _LEFT, _RIGHT)
    ticks = [
        label(scale(at), y + 12, svg.short(at), text_anchor="end" if scale(at) > _RIGHT - 20 else "middle")
        for at in scale.ticks
        if at == int(at)
    ]
    return label(_LEFT - 8, y + 12, "sample", text_anchor="end") + "".join(ticks)


def _sizes(length: int, bins: int) -> list[int]:
    """Samples in each bin: index i lies in bin i * bins // length."""
    edges = [-(-place * length // bins) for place in range(bins + 1)]
    return [end - start for start, end in pairwise(edges)]


def _per_bin(indices: Iterable[int], length: int, bins: int) -> list[int]:
    seen = Counter(index * bins // length for index in indices if 0 <= index < length)
    return [seen[place] for place in range(bins)]


def _filled(indices: set[int], length: int, bins: int) -> list[int]:
    """For each bin a level: 0 for none of its samples, up to _LEVELS for all."""
    pairs = zip(_per_bin(indices, length, bins), _sizes(length, bins), strict=True)
    return [-(-seen * _LEVELS // size) for seen, size in pairs]


def _cells(levels: Sequence[int], y: float, high: float, name: str) -> str:
    """One path for each level, over all bins that have it; neighbours are joined where there are many."""
    wide = (_RIGHT - _LEFT) / len(levels)
    gap = 1.0 if wide >= 6 else 0.0
    found = []
    for level in range(1, _LEVELS + 1):
        strokes = [
            f"M{svg.number(_LEFT + start * wide)} {svg.number(y)}h{svg.number((end - start) * wide - gap)}"
            f"v{svg.number(high)}H{svg.number(_LEFT + start * wide)}z"
            for start, end in _runs(levels, level, joined=gap == 0)
        ]
        if strokes:
            found.append(element("path", d="".join(strokes), class_=f"{name} level{level}"))
    return "".join(found)


def _runs(levels: Sequence[int], level: int, joined: bool) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for place, one in enumerate(levels):
        if one != level:
            continue
        if joined and found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found
