"""Words that every part says in the same way."""

from collections.abc import Sequence


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 0, 2`; many of them as a range."""
    ordered = sorted(ranks)
    if len(ordered) > 4 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]} to {ordered[-1]}"
    return ("rank " if len(ordered) == 1 else "ranks ") + ", ".join(map(str, ordered))
