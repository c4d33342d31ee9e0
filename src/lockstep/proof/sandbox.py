"""A copy of the user's working directory for each take, so that takes see neither each other's files nor change any."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

COPIED = 1 << 20
"""Files up to so many bytes are copied, larger ones are linked and copied when the script opens them for writing."""
MOST_FILES = 20_000
_LEFT_OUT = {
    ".git",
    ".hg",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}


def copy_folder(source: Path, target: Path) -> None:
    """Make `target` look like `source`. Beyond 20,000 files what is left is linked as whole folders."""
    target.mkdir(parents=True)
    left = MOST_FILES
    for folder, folders, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        for name in list(folders):
            path = Path(folder, name)
            if name in _LEFT_OUT or target.is_relative_to(path):
                folders.remove(name)
            elif path.is_symlink() or left <= 0:
                folders.remove(name)
                (here / name).symlink_to(path.resolve())
            else:
                (here / name).mkdir()
        for name in files:
            left -= 1
            _copy(Path(folder, name), here / name)


def _copy(source: Path, target: Path) -> None:
    try:
        if source.is_file() and source.stat().st_size <= COPIED:
            shutil.copy2(source, target)
        else:
            target.symlink_to(source.resolve())
    except OSError:  # a socket, or a file that only others may read: the script does without it
        return


def guard_links(sandbox: Path) -> None:
    """From now on a linked file below the sandbox becomes a copy before this process opens it for writing."""

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            path = Path(os.fsdecode(args[0])).absolute()
            writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND)
            if writes and path.is_relative_to(sandbox) and path.is_symlink():
                own(path)

    sys.addaudithook(audit)


def own(path: Path) -> None:
    """Replace a link by a copy of what it points to."""
    origin = path.resolve()
    path.unlink()
    if origin.exists():
        shutil.copy2(origin, path)


def original(path: str, sandbox: Path, source: Path) -> str:
    """A path as the user knows it."""
    root = f"{sandbox}{os.sep}"
    return f"{source}{os.sep}{path[len(root) :]}" if path.startswith(root) else path
