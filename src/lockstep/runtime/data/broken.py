"""An error on its way from a DataLoader worker to the rank that raises it."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.core.errors import LockstepError, RunError, UserError, explain


@dataclass(frozen=True)
class Broken:
    """An error as a value: a DataLoader would rebuild an exception from its text and drag a traceback along."""

    message: str
    misuse: bool

    def error(self, rank: int) -> LockstepError:
        """The error to raise on `rank`."""
        message = f"rank {rank}: {self.message}"
        return UserError(message) if self.misuse else RunError(message)


def unreadable(error: Exception, stream: str, epoch: int, index: int, files: str = "") -> Broken:
    """What a sample that raised becomes: named by its index, its files where they are known, and the user's line."""
    return _broken(error, f"reading {stream} sample {index}", "every sample of the data set can be read", epoch, files)


def unbatchable(error: Exception, stream: str, keys: Sequence[tuple[int, int]]) -> Broken:
    """What samples become that cannot be made into a batch, or whose labels cannot be looked at."""
    doing = f"making a batch of {stream} samples {shown(keys)}"
    return _broken(error, doing, "collate and labels take any samples of the data set", keys[0][0] if keys else 0)


def shown(keys: Sequence[tuple[int, int]]) -> str:
    """The indices of (epoch, index) pairs, the first ones of many."""
    return ", ".join(str(index) for _, index in keys[:8]) + (" ..." if len(keys) > 8 else "")


def _broken(error: Exception, doing: str, must: str, epoch: int, files: str = "") -> Broken:
    if isinstance(error, LockstepError):
        return Broken(str(error), isinstance(error, UserError))
    frames = traceback.extract_tb(error.__traceback__)[1:]
    user = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    place = f"{user[-1].filename}:{user[-1].lineno} in {user[-1].name}" if user else "the data set itself"
    seen = f"{doing} raised {type(error).__name__}: {error}"
    return Broken(explain(seen, must, f"epoch {epoch}, {f'{files}, ' if files else ''}{place}"), misuse=False)


def sound(value: Any, rank: int) -> Any:
    """The value itself; raises where it is an error in transit."""
    if isinstance(value, Broken):
        raise value.error(rank)
    return value
