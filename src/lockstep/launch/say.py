"""What a launcher says while its ranks run."""

import sys
from contextlib import suppress


def say(text: str) -> None:
    """A block for the user, on stderr. Where nobody listens any more (a closed terminal, a dead pipe), it is lost."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
