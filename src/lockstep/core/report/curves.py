"""Pictures of loss curves: the runs over each other, and how far they are apart, on a log axis."""

import math
from collections.abc import Iterator, Sequence

from lockstep.core.proof import Curve
from lockstep.core.report import svg
from lockstep.core.report.svg import Figure, Scale, element, label, short
from lockstep.core.report.words import count

_WIDTH, _HEIGHT = 560.0, 253.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 548.0, 16.0, 218.0
_ZERO = 206.0  # where equal values lie on the log axis
_POINTS, _ROWS = 500, 100
Values = Sequence[float]


def figures(curves: Sequence[Curve], mark: int | None = None) -> list[Figure]:
    """Loss curves and their differences; mark: the step where the runs part. The first `reference` is the reference."""
    seen = [curve for curve in curves if curve.values]
    if not seen:
        return []
    reference = next((curve for curve in seen if curve.label == "reference"), seen[0])
    runs = [curve for curve in seen if curve is not reference]
    found = [_losses(reference, runs, mark)]
    if runs:
        found.append(_differences(reference, runs, mark))
    return found


def _losses(reference: Curve, runs: Sequence[Curve], mark: int | None) -> Figure:
    everyone = [reference, *runs]
    finite = [value for curve in everyone for value in curve.values if math.isfinite(value)]
    steps = max(len(curve.values) for curve in everyone)
    said = ", ".join(f"{curve.label} {_ends(curve.values)}" for curve in everyone)
    missing = sum(not math.isfinite(value) for curve in everyone for value in curve.values)
    said = f"Loss over {count(steps, 'step')}: {said}." + (f" {count(missing, 'value')} not finite." if missing else "")
    across, up = _across(steps), _up(finite or [0.0, 1.0])
    parts = [*_frame(across, up, mark)]
    for place, curve in enumerate(everyone):
        parts.append(svg.path(_points(curve.values, across, up), class_=f"line line{min(place, 3)}"))
    parts.append(_legend([curve.label for curve in everyone]))
    head = ("step", *(curve.label for curve in everyone))
    rows = [(str(at), *(_value(curve.values, at) for curve in everyone)) for at in _thin(steps, mark)]
    return Figure("Loss", said, svg.picture(_WIDTH, _HEIGHT, said, *parts), head, tuple(rows), bool(missing))


def _differences(reference: Curve, runs: Sequence[Curve], mark: int | None) -> Figure:
    names = [curve.label for curve in runs]
    gaps = [_gaps(reference.values, curve.values) for curve in runs]
    said = " ".join(f"{name}: {_distance(values)}" for name, values in zip(names, gaps, strict=True))
    positive = [gap for values in gaps for gap in values if math.isfinite(gap) and gap > 0]
    steps = max(len(values) for values in gaps)
    low, high = (min(positive), max(positive)) if positive else (1e-16, 1.0)
    low, high = (max(low / 10, 5e-324), min(high * 10, 1e308)) if low * 100 > high else (low, high)
    across, up = _across(steps), Scale(low, high, _ZERO - 24, _TOP, log=True)
    parts = [*_frame(across, up if positive else None, mark)]
    parts.append(element("line", x1=_LEFT, x2=_RIGHT, y1=_ZERO, y2=_ZERO, class_="zero"))
    parts.append(label(_LEFT - 6, _ZERO + 4, "equal", text_anchor="end"))
    for place, values in enumerate(gaps, 1):
        points = [point and (point[0], _ZERO if point[1] < 0 else up(point[1])) for point in _spread(values, across)]
        parts.append(svg.path(points, class_=f"line line{min(place, 3)}"))
    parts.append(_legend(names, first=1))
    top = 0.0 if positive or mark is not None else _ZERO - 20  # equal everywhere: one line says it
    picture = svg.picture(_WIDTH, _HEIGHT, said, *parts, top=top)
    rows = tuple((str(at), *(_value(values, at) for values in gaps)) for at in _thin(steps, mark))
    return Figure("Distance from the reference", said, picture, ("step", *names), rows, any(map(any, gaps)))


def _gaps(reference: Values, run: Values) -> list[float]:
    """Absolute differences of the steps that both have; not finite where just one of both values is not."""
    pairs = zip(reference, run, strict=False)
    return [
        0.0 if one == other or (one != one and other != other) else abs(one / 2 - other / 2) * 2 for one, other in pairs
    ]


def _distance(gaps: Values) -> str:
    if not gaps:
        return "no step in common."
    apart = [place for place, gap in enumerate(gaps) if gap != 0]
    if not apart:
        return f"equal, to the last bit, at {'all ' if len(gaps) > 1 else ''}{count(len(gaps), 'step')}."
    largest = math.inf if not all(map(math.isfinite, gaps)) else max(gaps)
    most = f"at most {short(largest)}" if math.isfinite(largest) else "where one is not finite"
    return f"apart at {len(apart):,} of {count(len(gaps), 'step')}, first at step {apart[0]}, {most}."


def _ends(values: Values) -> str:
    return f"{short(values[0])} to {short(values[-1])}" if len(values) > 1 else short(values[0])


def _value(values: Values, at: int) -> str:
    return repr(values[at]) if at < len(values) else ""


def _thin(steps: int, mark: int | None) -> list[int]:
    """The steps of a table: all, or every k-th and the marked one."""
    every = math.ceil(steps / _ROWS)
    return sorted({*range(0, steps, max(every, 1)), steps - 1, *([mark] if mark is not None and mark < steps else [])})


def _across(steps: int) -> Scale:
    return Scale(0, max(steps - 1, 1), _LEFT, _RIGHT)


def _up(finite: Values) -> Scale:
    """Linear, unless the values span more than three decades."""
    low, high = min(finite), max(finite)
    if low > 0 and high / low > 1000:
        return Scale(low, high, _BOTTOM - 6, _TOP, log=True)
    if low == high:
        low, high = low - (abs(low) / 2 or 1), high + (abs(high) / 2 or 1)
    return Scale(low, high, _BOTTOM - 6, _TOP)


def _frame(across: Scale, up: Scale | None, mark: int | None) -> Iterator[str]:
    """Grid, ticks and the marked step."""
    for value in [] if up is None else up.ticks:
        assert up is not None
        yield element("line", x1=_LEFT, x2=_RIGHT, y1=up(value), y2=up(value), class_="grid")
        yield label(_LEFT - 6, up(value) + 4, short(value), text_anchor="end")
    for value in across.ticks:
        if value == int(value):
            yield element("line", x1=across(value), x2=across(value), y1=_BOTTOM, y2=_BOTTOM + 4, class_="tick")
            yield label(across(value), _BOTTOM + 17, short(value), text_anchor="middle")
    yield element("line", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="axis")
    yield label(_RIGHT, _BOTTOM + 30, "optimizer step", text_anchor="end", class_="quiet")
    if mark is not None and mark <= across.high:
        x = across(mark)
        near_end = x > _RIGHT - 140
        yield element("line", x1=x, x2=x, y1=_TOP - 6, y2=_BOTTOM, class_="mark")
        at = x - 5 if near_end else x + 5
        yield label(
            at, _TOP, f"first difference: step {mark}", class_="marked", text_anchor="end" if near_end else "start"
        )


def _points(values: Values, across: Scale, up: Scale) -> list[tuple[float, float] | None]:
    return [point and (point[0], up(point[1])) for point in _spread(values, across, floor=None)]


def _spread(values: Values, across: Scale, floor: float | None = 0.0) -> list[tuple[float, float] | None]:
    """(x, value) of the points to draw, None for a gap. Zero becomes -1 where floor is 0: it has no logarithm.

    Of many values the least and the largest of each short stretch are drawn, so that no peak is lost.
    """
    every = max(1, math.ceil(len(values) / _POINTS) * 2)
    found: list[tuple[float, float] | None] = []
    for start in range(0, len(values), every):
        stretch = range(start, min(start + every, len(values)))
        finite = [place for place in stretch if math.isfinite(values[place])]
        chosen = finite
        if every > 2 and finite:
            chosen = sorted({min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)})
        kept = set(chosen) | {place for place in stretch if not math.isfinite(values[place])}
        for place in sorted(kept):
            value = values[place]
            if place not in chosen:
                found += [None] if not found or found[-1] is not None else []
                continue
            found.append((across(place), -1.0 if floor is not None and value <= floor else value))
    return found


def _legend(names: Sequence[str], first: int = 0) -> str:
    parts = []
    for place, name in enumerate(names[:6]):
        x = _LEFT + 130.0 * (place % 3)
        y = _BOTTOM + 30 + 14 * (place // 3) - (14 if len(names) > 3 else 0)
        parts.append(element("line", x1=x, x2=x + 18, y1=y - 4, y2=y - 4, class_=f"line line{min(place + first, 3)}"))
        parts.append(label(x + 24, y, name[:15]))
    return "".join(parts)
