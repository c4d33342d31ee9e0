"""One temporary folder for a launch, which does not stay: not even when the launcher was killed, for long."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import current_process
from pathlib import Path

_PREFIX = "lockstep-"
_MARK = ".launch"
"""A file in each of our folders: one that a user has named so by himself is none of our business."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the records of the ranks and for the sockets of their DataLoader workers; removed at the end.

    Python's workers keep such sockets in a folder each, which stays when they are killed: here it goes with the rest.
    A launcher that was killed cannot remove its folder, so the next one does: the lock on it was released with it.
    """
    sweep()
    # Locked before it has the name that others look for, so that nobody takes it for one that was left.
    hidden = Path(tempfile.mkdtemp(prefix="." + _PREFIX))
    lock = os.open(hidden, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (hidden / _MARK).touch()
    folder = hidden.rename(hidden.with_name(hidden.name[1:]))
    config = getattr(current_process(), "_config", {})
    before = config.get("tempdir")
    config["tempdir"] = str(folder)  # children inherit it, and theirs too
    try:
        yield folder
    finally:
        config["tempdir"] = before
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove the folders of launchers that are gone."""
    for folder in _candidates():
        with _without_launcher(folder) as left:
            if left:
                shutil.rmtree(folder, ignore_errors=True)


def abandoned() -> list[Path]:
    """The folders of launchers that are gone."""
    found = []
    for folder in _candidates():
        with _without_launcher(folder) as left:
            found += [folder] * left
    return found


def _candidates() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob(_PREFIX + "*"))


@contextmanager
def _without_launcher(folder: Path) -> Iterator[bool]:
    """Whether nobody uses this user's folder; as long as the block runs, nobody else takes it either."""
    lock = -1
    left = False
    with suppress(OSError):  # another user's, another sweeper's, or in use
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left = os.fstat(lock).st_uid == os.getuid() and (folder / _MARK).exists()
    try:
        yield left
    finally:
        if lock >= 0:
            os.close(lock)
