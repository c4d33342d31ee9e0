"""What `lockstep doctor --clean` does: show what earlier runs have left, then end it and remove it."""

from collections.abc import Callable

from lockstep.launch import leftovers
from lockstep.launch.earlier import shm, strays
from lockstep.launch.earlier.strays import Stray


def clean(say: Callable[[str], None]) -> list[Stray]:
    """End the strays of this user and remove their shared memory and temporary folders; each is said before.

    Returns: the strays that could not be ended.
    """
    found = strays.find()
    for stray in found:
        say(f"found: {stray}")
    ended = strays.end(found)
    for stray in found:
        say(f"ended: pid {stray.pid}" if stray in ended else f"not ended: pid {stray.pid}")
    # Only now nobody holds them any more.
    for segment in shm.remove(shm.leaked()):
        say(f"removed: {segment.path}, {segment.num_bytes / 2**20:.1f} MiB of shared memory that nobody used")
    folders = leftovers.abandoned()
    leftovers.sweep()
    for folder in folders:
        say(f"removed: {folder}, of a launcher that is gone" if not folder.exists() else f"not removed: {folder}")
    return [stray for stray in found if stray not in ended]
