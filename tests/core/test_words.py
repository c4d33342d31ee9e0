"""Words that every part says in the same way."""

import pytest

from lockstep.core.words import ranks_text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [((2,), "rank 2"), ((0, 2), "ranks 0, 2"), (range(5), "ranks 0 to 4"), ((0, 1, 2, 3, 9), "ranks 0, 1, 2, 3, 9")],
)
def test_ranks(ranks: tuple[int, ...], text: str) -> None:
    assert ranks_text(ranks) == text
