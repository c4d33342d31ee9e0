"""A control group with little memory, for a launcher and all it starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LIMIT = 600 * 1024**2


@contextmanager
def small_memory() -> Iterator[Path | None]:
    """A new group below this process's own; None where none may be made."""
    folder = _parent() / f"lockstep-test-{os.getpid()}"
    try:
        folder.mkdir()
        limit = folder / "memory.limit_in_bytes"
        (limit if limit.exists() else folder / "memory.max").write_text(str(LIMIT))
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        yield None
        return
    try:
        yield folder
    finally:
        folder.rmdir()


def join(folder: Path) -> None:
    """Move this process into the group."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def _parent() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return ROOT / "memory" / path.lstrip("/")
    return ROOT  # version 2: below a group with processes there can be none with a limit
