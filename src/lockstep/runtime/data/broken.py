"""An error on its way from a DataLoader worker to the rank that raises it."""

import traceback
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


def unreadable(error: Exception, stream: str, epoch: int, index: int) -> Broken:
    """What a sample that raised becomes: named by its index and the line of the user's code."""
    if isinstance(error, LockstepError):
        return Broken(str(error), isinstance(error, UserError))
    frames = traceback.extract_tb(error.__traceback__)[1:]
    user = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    place = f"{user[-1].filename}:{user[-1].lineno} in {user[-1].name}" if user else "the data set itself"
    seen = f"reading {stream} sample {index} raised {type(error).__name__}: {error}"
    return Broken(explain(seen, "every sample of the data set can be read", f"epoch {epoch}, {place}"), misuse=False)


def sound(value: Any, rank: int) -> Any:
    """The value itself; raises where it is an error in transit."""
    if isinstance(value, Broken):
        raise value.error(rank)
    return value
