"""What a launcher says while its ranks run."""

import sys


def say(text: str) -> None:
    """A block for the user, on stderr."""
    print(text, file=sys.stderr, flush=True)
