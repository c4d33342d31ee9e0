"""A picture of what each rank did around the first difference: bars over time."""

import math
from collections.abc import Iterator, Sequence

from lockstep.core.proof import Moment
from lockstep.core.report import svg
from lockstep.core.report.svg import Figure, Scale, element, hover, label, short
from lockstep.core.report.words import count, shown

_WIDTH, _LEFT, _RIGHT, _TOP = 1120.0, 96.0, 1112.0, 26.0
_BAR, _LANES, _MOST = 17.0, 3, 600
_KINDS = ("batch", "forward", "backward", "collective", "step", "save")


def figures(moments: Sequence[Moment], mark: int | None = None, root: str = "") -> list[Figure]:
    """One, or none without moments. mark: the step of the first difference; of many moments those near it are shown."""
    near = _near(moments, mark)
    if not near:
        return []
    low, high = min(one.start for one in near), max(one.end for one in near)
    ranks = sorted({one.rank for one in near})
    steps = sorted({one.step for one in near})
    which = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    left = len(moments) - len(near)
    said = f"{count(len(ranks), 'rank')}, {which}, {_time(high - low)}." + (
        f" {count(left, 'moment')} further away not shown." if left else ""
    )
    rows = tuple(_row(one, low, root) for one in near)
    head = ("rank", "step", "what", "begins", "takes", "said", "where")
    scale = Scale(low, high, _LEFT, _RIGHT)
    return [Figure("What the ranks did", said, _picture(near, ranks, scale, mark, said, root), head, rows)]


def _row(one: Moment, begin: float, root: str) -> tuple[str, ...]:
    where = shown(one.place, root) if one.place else ""
    times = (_time(one.start - begin), _time(one.end - one.start))
    return (str(one.rank), str(one.step), one.kind, *times, one.text, where)


def _near(moments: Sequence[Moment], mark: int | None) -> list[Moment]:
    """The moments by rank and time; of too many the steps nearest to the mark."""
    moments = [one for one in moments if math.isfinite(one.start) and math.isfinite(one.end)]
    if len(moments) > _MOST:
        centre = mark if mark is not None else min(one.step for one in moments)
        moments = sorted(moments, key=lambda one: abs(one.step - centre))[:_MOST]
    return sorted(moments, key=lambda one: (one.rank, one.start, -one.end))


def _picture(near: Sequence[Moment], ranks: Sequence[int], scale: Scale, mark: int | None, said: str, root: str) -> str:
    y = _TOP
    back, bars = [], []
    for rank in ranks:
        mine = [one for one in near if one.rank == rank]
        lanes = _lanes(mine)
        high = (max(lanes) + 1) * (_BAR + 2) + 6
        back.append(element("rect", x=_LEFT, y=y, width=_RIGHT - _LEFT, height=high - 4, class_="lane"))
        back.append(label(_LEFT - 8, y + _BAR - 2, f"rank {rank}", text_anchor="end"))
        for one, lane in zip(mine, lanes, strict=True):
            bars.append(_bar(one, scale, y + 2 + lane * (_BAR + 2), root))
        y += high
    marked = _marked(near, scale, mark, y)
    parts = [*back, *marked, *_seconds(scale, y), *bars, *_legend(near, y + 36)]
    return svg.picture(_WIDTH, y + 46, said, *parts)


def _lanes(moments: Sequence[Moment]) -> list[int]:
    """A lane for each, so that what overlaps (a collective inside backward) is drawn below, up to _LANES."""
    ends = [float("-inf")] * _LANES
    found = []
    for one in moments:
        lane = next((place for place, end in enumerate(ends) if end <= one.start), _LANES - 1)
        ends[lane] = max(ends[lane], one.end)
        found.append(lane)
    return found or [0]


def _bar(one: Moment, scale: Scale, y: float, root: str) -> str:
    x = scale(one.start)
    wide = max(scale(one.end) - x, 2.0)
    took = f"{_time(one.end - one.start)} from {_time(one.start - scale.low)}"
    where = f"\n{shown(one.place, root)}" if one.place else ""
    said = f"rank {one.rank}, step {one.step}: {one.kind} {one.text}\n{took}{where}"
    kind = one.kind if one.kind in _KINDS else "other"
    inside = [hover(said), element("rect", x=x, y=y, width=wide, height=_BAR, rx=1.5, class_=f"bar {kind}")]
    if wide >= 8 + 6.2 * len(one.kind):
        inside.append(label(x + 4, y + _BAR - 5, one.kind, class_=f"on-{kind}"))
    return element("g", *inside)


def _marked(near: Sequence[Moment], scale: Scale, mark: int | None, bottom: float) -> Iterator[str]:
    """A band behind the step of the first difference."""
    there = [one for one in near if one.step == mark]
    if not there:
        return
    x, end = scale(min(one.start for one in there)), scale(max(one.end for one in there))
    yield element("rect", x=x, y=_TOP - 6, width=max(end - x, 3.0), height=bottom - _TOP + 6, class_="band")
    anchor = "end" if x > _RIGHT - 160 else "start"
    yield label(end if anchor == "end" else x, _TOP - 11, f"first difference: step {mark}", class_="marked",
                text_anchor=anchor)  # fmt: skip


def _seconds(scale: Scale, y: float) -> Iterator[str]:
    span = scale.high - scale.low
    for at in svg.round_values(0.0, span, about=8):
        x = scale(scale.low + at)
        yield element("line", x1=x, x2=x, y1=_TOP, y2=y, class_="grid")
        yield label(x, y + 13, _time(at), text_anchor="middle")


def _legend(near: Sequence[Moment], y: float) -> Iterator[str]:
    present = {one.kind for one in near}
    kinds = [kind for kind in _KINDS if kind in present] + (["other"] if present - set(_KINDS) else [])
    for place, kind in enumerate(kinds):
        x = _LEFT + 110 * place
        yield element("rect", x=x, y=y - 9, width=14, height=10, rx=1.5, class_=f"bar {kind}")
        yield label(x + 20, y, kind)


def _time(seconds: float) -> str:
    """`0`, `3.2 ms`, `1.5 s`."""
    if seconds == 0:
        return "0"
    return f"{short(seconds)} s" if abs(seconds) >= 1 else f"{short(seconds * 1000)} ms"
