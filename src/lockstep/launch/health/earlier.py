"""What earlier runs have left: processes without a launcher, shared memory, temporary folders."""

from collections.abc import Sequence

from lockstep.launch import leftovers
from lockstep.launch.earlier import shm, strays
from lockstep.launch.health.check import Asked, Check, size


def checks(asked: Asked) -> list[Check]:
    """A line for each process, one for the files."""
    return [*map(stray, strays.find()), *files()] or [Check("leftovers", "leftovers", "ok", "none of an earlier run")]


def stray(found: strays.Stray) -> Check:
    """A process of an earlier run that still holds what the next one needs."""
    return Check("leftovers", f"pid {found.pid}", "warn", str(found).partition(", ")[2], f"`{strays.CLEAN}` ends it")


def files() -> list[Check]:
    """Files that nobody uses any more. The next launch removes such folders by itself."""
    found = []
    if segments := shm.leaked():
        total = size(sum(one.num_bytes for one in segments))
        seen = f"{_count(segments, 'file')} in {shm.FOLDER} of which no process makes use, {total}"
        found.append(Check("leftovers", "shared memory", "warn", seen, f"`{strays.CLEAN}` removes them"))
    if folders := leftovers.abandoned():
        seen = f"{_count(folders, 'temporary folder')} of launchers that were killed"
        found.append(Check("leftovers", "folders", "ok", seen, "the next launch removes them"))
    return found


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"
