"""Small parts of pictures: elements, scales, ticks. Text in, SVG text out; nothing of it is trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from lockstep.core.report.words import clean


@dataclass(frozen=True)
class Figure:
    """A picture and the same in words.

    title: a heading. said: what is to be seen, one or two sentences. note: how to read the picture. svg: "" for none.
    head, rows: a table of the numbers behind it. signal: it shows something wrong.
    """

    title: str
    said: str
    svg: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    signal: bool = False
    note: str = ""


def element(name: str, *inside: str, **attributes: object) -> str:
    """`<name key="value">inside</name>`. `class_` is class, `stroke_width` is stroke-width. inside is SVG already."""
    words = []
    for key, value in attributes.items():
        shown = number(value) if isinstance(value, float) else str(value)
        words.append(f' {key.rstrip("_").replace("_", "-")}="{escape(clean(shown))}"')
    return f"<{name}{''.join(words)}>{''.join(inside)}</{name}>"


def label(x: float, y: float, text: str, **attributes: object) -> str:
    """Text at a point."""
    return element("text", escape(clean(text)), x=x, y=y, **attributes)


def hover(text: str) -> str:
    """What a pointer that rests on the enclosing element shows."""
    return element("title", escape(clean(text)))


def picture(width: float, height: float, said: str, *inside: str, top: float = 0.0) -> str:
    """A whole SVG element, named for those who cannot see it; it scales with its container within limits.

    top: where the picture begins; what is above is cut off.
    """
    style = f"max-width:{number(width)}px;min-width:{number(width - 280)}px"
    box = f"0 {number(top)} {number(width)} {number(height - top)}"
    return element("svg", *inside, viewBox=box, role="img", aria_label=said, style=style)


def number(value: float) -> str:
    """At most two decimals, none that say nothing."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def short(value: float) -> str:
    """A tick or a value: `0.25`, `1e-7`, `12,000`."""
    if 1000 <= abs(value) < 1e6 and value == int(value):
        return f"{int(value):,}"
    mantissa, mark, exponent = f"{value:.4g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end] of the picture, linearly or by logarithm (then low > 0)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies; what is outside lies on the edge."""
        low, high, value = (math.log10(one) if self.log else one for one in (self.low, self.high, max(value, self.low)))
        # Halves, since high - low may be more than the largest float.
        part = (min(value, high) / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return self.start + (self.end - self.start) * part

    @property
    def ticks(self) -> list[float]:
        """Round values in the range, about five."""
        return decades(self.low, self.high) if self.log else round_values(self.low, self.high)


def round_values(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not math.isfinite(span) or span <= 0 or span / about < 1e-300:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next((power * times for times in (1, 2, 5) if power * times * about >= span), power * 10)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [place * step for place in range(first, min(last, first + 4 * about) + 1)]


def decades(low: float, high: float, most: int = 6) -> list[float]:
    """Powers of ten, every one or every k-th."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / most))
    return [10.0**place for place in range(first, last + 1, every)]


def path(points: Sequence[tuple[float, float] | None], **attributes: object) -> str:
    """A line through points; None is a gap, and a point between two gaps a dot."""
    parts: list[str] = []
    for place, point in enumerate(points):
        if point is None:
            continue
        begins = place == 0 or points[place - 1] is None
        parts.append(f"{'M' if begins else 'L'}{number(point[0])} {number(point[1])}")
        if begins and (place + 1 == len(points) or points[place + 1] is None):
            parts.append("h0")  # drawn as a dot by round line ends
    return element("path", d="".join(parts), **attributes) if parts else ""
