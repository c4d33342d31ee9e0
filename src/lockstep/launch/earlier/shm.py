"""Shared memory of torch's that nobody uses any more: files in /dev/shm that a killed process has left.

torch removes the name of a segment at once, unless its sharing strategy is `file_system`. Then the file goes with
its last user, or stays for ever when the `torch_shm_manager` that counts the users was killed too.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.launch.earlier import procfs

FOLDER = Path("/dev/shm")
_NAME = re.compile(r"^torch_(\d+)_")
_MANAGER = "torch_shm_manager"


@dataclass(frozen=True)
class Segment:
    """A file that nobody uses. num_bytes: the memory that it takes."""

    path: Path
    num_bytes: int
    inode: int


def leaked() -> list[Segment]:
    """Segments of this user that no process has mapped, whose maker is gone, and that nobody can still be waiting for.

    A segment may be on its way between two processes, mapped by none. So where a manager runs none counts as leaked,
    nor where /dev/shm is shared with processes that this one cannot see (a container with the host's IPC).
    """
    made = [path for path in FOLDER.glob("torch_*") if _NAME.match(path.name)]
    if not made or _shared_with_unseen():
        return []
    mapped: set[str] = set()
    running = procfs.processes()
    for process in running.values():
        if process.uid == os.geteuid():
            mapped.update(process.mapped())
            if _MANAGER in process.command:
                return []
    found = []
    for path in made:
        maker = _NAME.match(path.name)
        if str(path) in mapped or maker is None or int(maker[1]) in running:
            continue
        with suppress(OSError):  # gone meanwhile
            status = path.lstat()
            if status.st_uid == os.geteuid():
                found.append(Segment(path, status.st_blocks * 512, status.st_ino))
    return found


def remove(segments: list[Segment]) -> list[Segment]:
    """Remove the files that are still those that were seen. Returns: what was removed."""
    removed = []
    for segment in segments:
        with suppress(OSError):
            if segment.path.lstat().st_ino == segment.inode:
                segment.path.unlink()
                removed.append(segment)
    return removed


def _shared_with_unseen() -> bool:
    """Whether this is a container of its own processes with the host's shared memory."""
    try:
        ipc, pid = (os.stat(procfs.PROC / "self/ns" / name).st_ino for name in ("ipc", "pid"))  # noqa: PTH116
    except OSError:
        return True
    return ipc == _FIRST_IPC and pid != _FIRST_PID


# The kernel's fixed numbers of the namespaces that it starts with.
_FIRST_IPC, _FIRST_PID = 0xEFFFFFFF, 0xEFFFFFFC
