"""Errors and names in few characters."""

import re
import traceback
from hashlib import blake2b
from pathlib import Path

from lockstep.core.errors import LockstepError
from lockstep.runtime.data.named import error_text

_NOT_THEIRS = (f"{Path(__file__).parents[1]}/", "torch/utils/data/_utils/collate.py")
"""Parts of file names whose lines tell a user nothing."""


def name_digest(name: str) -> int:
    """64 bits of a name, so that a million of them take 8 MB."""
    return int.from_bytes(blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def told(error: BaseException) -> str:
    """What an error says in one line, with the line of the user's code that raised it.

    Of an error that is ours for one of the user's, the user's is told.
    """
    if isinstance(error, LockstepError):
        return error_text(error).partition("\n")[0].rstrip(".")
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not any(part in frame.filename for part in _NOT_THEIRS)]
    if not frames and error.__cause__ is not None:
        return told(error.__cause__)
    user = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    place = f" ({user[-1].filename.rpartition('/')[2]}:{user[-1].lineno} in {user[-1].name})" if user else ""
    # An address would be another in each run.
    text = re.sub(r" at 0x[0-9a-f]+", "", " ".join(error_text(error).split()))
    return f"{type(error).__name__}{': ' if text else ''}{text[:400]}{place}"
