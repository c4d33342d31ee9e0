"""A few lines of the user's source around a place."""

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.core.finding import Place
from lockstep.core.report.words import clean

_LONGEST = 200  # characters of a line that are shown


@dataclass(frozen=True)
class Line:
    """number: from 1. here: the place itself, not its surroundings."""

    number: int
    text: str
    here: bool


def excerpt(sources: Mapping[str, str], place: Place | None, around: int = 3) -> tuple[Line, ...]:
    """The lines around a place, without their common indentation; () where the source is not known."""
    if place is None or place.path not in sources:
        return ()
    # Not splitlines: Python counts no form feed or U+2028 as a line end.
    lines = sources[place.path].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not 1 <= place.line <= len(lines):
        return ()
    first, last = max(place.line - around, 1), min(place.line + around, len(lines))
    chosen = [clean(line.expandtabs(4)).rstrip() for line in lines[first - 1 : last]]
    indent = min((len(line) - len(line.lstrip()) for line in chosen if line), default=0)
    return tuple(Line(number, _short(line[indent:]), number == place.line) for number, line in enumerate(chosen, first))


def source_line(sources: Mapping[str, str], place: Place | None) -> str:
    """The line itself, without indentation; "" where it is not known."""
    return next((line.text for line in excerpt(sources, place, around=0)), "")


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
