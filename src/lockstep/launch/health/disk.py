"""Write access and free space where runs and temporary files go."""

import os
import tempfile
from pathlib import Path

from lockstep.launch.health.check import Asked, Check, Status, size

_ADVICE = {
    "working folder": "change its permissions, or go to another folder",
    "temporary folder": "set TMPDIR to another folder",
}
_LITTLE, _NOTHING = 2**30, 2**26


def checks(asked: Asked) -> list[Check]:
    """The working folder and the temporary one."""
    found = []
    for name, where in (("working folder", Path.cwd), ("temporary folder", lambda: Path(tempfile.gettempdir()))):
        try:
            found.append(folder(where(), name))
        except FileNotFoundError as error:  # the working folder was deleted; no temporary one is usable
            found.append(Check("disk", name, "fail", error.strerror or str(error), _ADVICE[name]))
    return found


def folder(path: Path, name: str) -> Check:
    """A file is written, flushed to the disk and removed."""
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".lockstep-doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        status = os.statvfs(path)
    except OSError as error:
        return Check("disk", name, "fail", f"{path} cannot be written: {error.strerror}", _ADVICE[name])
    return judge(f"{path}", name, status.f_bavail * status.f_frsize, status.f_files, status.f_favail)


def judge(path: str, name: str, free: int, files: int, files_left: int) -> Check:
    """free: bytes. files: how many files the disk can hold, 0 where it does not say. files_left: of these."""
    seen = f"{path} can be written, {size(free)} free"
    if files and files_left < 100:
        return Check("disk", name, "fail", f"{path}: no more files fit on this disk", "remove files (`df -i`)")
    if free < _LITTLE:
        status: Status = "fail" if free < _NOTHING else "warn"
        return Check("disk", name, status, seen, "free some space: checkpoints need more")
    return Check("disk", name, "ok", seen)
