"""Words that every part says in the same way."""

from collections.abc import Iterator, Sequence


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 0, 2`; many of them as a range."""
    ordered = sorted(ranks)
    if len(ordered) > 4 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]} to {ordered[-1]}"
    return ("rank " if len(ordered) == 1 else "ranks ") + ", ".join(map(str, ordered))


def amount(num_bytes: float) -> str:
    """`1.5 MiB`."""
    value, units = float(num_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.3g} {units[0]}"


def printable(text: str) -> str:
    """A line of text from a file or from foreign code, without what would move a terminal's cursor or colour it."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; where some are left out, three dots say so."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of text as a table without lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
