"""Errors and names in few characters."""

import re
import traceback
from hashlib import blake2b

from lockstep.core.errors import LockstepError


def name_digest(name: str) -> int:
    """64 bits of a name, so that a million of them take 8 MB."""
    return int.from_bytes(blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def told(error: BaseException) -> str:
    """What an error says in one line, with the line of the user's code that raised it."""
    if isinstance(error, LockstepError):
        return str(error).partition("\n")[0].rstrip(".")
    trace = list(traceback.extract_tb(error.__traceback__))
    frames = [frame for frame in trace if "/lockstep/runtime/scanning/" not in frame.filename] or trace
    user = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    place = f" ({user[-1].filename.rpartition('/')[2]}:{user[-1].lineno} in {user[-1].name})" if user else ""
    # An address would be another in each run.
    text = re.sub(r" at 0x[0-9a-f]+", "", " ".join(str(error).split()))
    return f"{type(error).__name__}{': ' if text else ''}{text[:400]}{place}"
