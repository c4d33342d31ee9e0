"""A copy of the user's working directory for each take, so that takes see neither each other's files nor change any."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from lockstep.trace.hooks.files import INSIDE

COPIED = 1 << 20
"""Files up to so many bytes are copied, larger ones are linked and copied when the script opens them for writing."""
COPIED_IN_ALL = 64 << 20
"""Beyond so many bytes small files are linked too."""
MOST_FILES = 20_000
LEVELS = 3
"""Folders above the copied one in which what lies beside it is linked."""
MOST_BESIDE = 2_000
"""Links in each of them."""
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
    left, room = MOST_FILES, COPIED_IN_ALL
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
            room -= _copy(Path(folder, name), here / name, min(COPIED, room))


def copy_with_surroundings(source: Path, root: Path) -> Path:
    """Copy a folder, whose absolute path is given, to the place below `root` that has the same path there.

    What lies beside it and beside the folders that hold it is linked, so that `../data` leads to the same files.
    """
    target = inside(root, source)
    copy_folder(source, target)
    for folder in [*source.parents][:LEVELS]:
        with suppress(OSError):  # a folder that only others may list
            for child in islice(folder.iterdir(), MOST_BESIDE):
                link = inside(root, child)
                if child.name not in _LEFT_OUT and not root.is_relative_to(child) and not link.exists():
                    link.symlink_to(child)
    return target


def inside(root: Path, path: Path) -> Path:
    """Where an absolute path lies below `root`."""
    return root.joinpath(*path.parts[1:])


def _copy(source: Path, target: Path, most: int) -> int:
    """Copy a file of up to so many bytes, else link it; returns the bytes that were copied."""
    try:
        size = source.stat().st_size if source.is_file() else None
        if size is not None and size <= most:
            shutil.copy2(source, target)
            return size
        target.symlink_to(source.resolve())
    except (OSError, RuntimeError):  # a file that only others may read, a link to itself: the script does without it
        pass
    return 0


def guard_links(sandbox: Path) -> None:
    """From now on what this process writes below the sandbox stays there: a linked file becomes a copy before it is
    opened for writing, a linked folder becomes one of links before anything in it is made, moved or removed."""
    guard = _Guard(sandbox)
    sys.addaudithook(guard.audit)
    _guard_writers(lambda path: guard.touched(path, True))


class _Guard:
    """Looks at what is about to be written."""

    def __init__(self, sandbox: Path) -> None:
        self._roots = {sandbox, sandbox.resolve()}
        self._mine = threading.local()

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Python calls this at every audited event, before what it announces happens."""
        if event == "open":
            if isinstance(args[2], int) and args[2] & _WRITING:
                self.touched(args[0], True)
        elif event == "os.chdir":
            # In a link the working folder would be the user's own, and every relative path with it.
            self.touched(_below(args[0]), False)
        elif event in _CHANGES:
            for number in _CHANGES[event]:
                self.touched(args[number], event in _FOLLOWING)

    def _leads_out(self, path: Path) -> bool:
        """A link, and none that the script has made within its copy."""
        return path.is_symlink() and not any(Path(os.path.realpath(path)).is_relative_to(one) for one in self._roots)

    def touched(self, raw: Any, content: bool) -> None:
        """A path is about to change. content: its content; else only its name."""
        if not isinstance(raw, str | bytes | os.PathLike) or getattr(self._mine, "busy", False):
            return
        try:
            path = Path(os.path.normpath(Path(os.fsdecode(raw)).absolute()))
        except OSError:  # the working folder is gone
            return
        root = next((one for one in self._roots if path.is_relative_to(one)), None)
        if root is None:
            return
        told = getattr(INSIDE, "busy", False)
        self._mine.busy = INSIDE.busy = True  # the script does none of this
        try:
            for parent in [*path.relative_to(root).parents][::-1]:
                if self._leads_out(root / parent):
                    unroll(root / parent)
            if content and self._leads_out(path):
                own(path)
        finally:
            self._mine.busy, INSIDE.busy = False, told


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
    "sqlite3.connect": (0,),
    "shutil.rmtree": (0,),
}
"""Audit events and which of their arguments are paths that change."""
_FOLLOWING = {"os.truncate", "os.chmod", "os.chown", "os.utime", "sqlite3.connect"}
"""Those that change what a link points to."""


def _below(folder: Any) -> Any:
    return os.path.join(os.fsdecode(folder), "_") if isinstance(folder, str | bytes | os.PathLike) else None  # noqa: PTH118


def _guard_writers(touched: Callable[[Any], None]) -> None:
    """Writers in C++ and Rust, which raise no audit event: those of torch.save and of safetensors."""
    import safetensors.numpy
    import safetensors.torch
    import torch.jit
    from torch import serialization

    writer: Any = serialization._open_zipfile_writer_file
    original = writer.__init__

    def init(self: Any, name: Any) -> None:
        touched(name)
        original(self, name)

    writer.__init__ = init
    script: Any = torch.jit.ScriptModule
    saved = script.save

    def save_script(self: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        touched(f)
        return saved(self, f, *args, **kwargs)

    script.save = save_script
    modules: tuple[Any, ...] = (safetensors.torch, safetensors.numpy)
    for module in modules:
        serialize = module.serialize_file

        def save(tensors: Any, path: Any, *args: Any, serialize: Any = serialize, **kwargs: Any) -> Any:
            touched(path)
            return serialize(tensors, path, *args, **kwargs)

        module.serialize_file = save


def own(path: Path) -> None:
    """Replace a link by a copy of what it points to."""
    origin = path.resolve()
    if not origin.is_file():
        path.unlink(missing_ok=True)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.copy2(origin, beside)
    beside.replace(path)  # another rank may do the same at this moment


def unroll(folder: Path) -> None:
    """Replace a link to a folder by a folder of links."""
    origin = folder.resolve()
    try:
        folder.unlink()
        folder.mkdir()
    except OSError:  # another rank does it
        deadline = time.monotonic() + 1.0
        while not folder.is_dir() and time.monotonic() < deadline:
            time.sleep(0.01)
        return
    if origin.is_dir():
        for child in origin.iterdir():
            with suppress(FileExistsError):
                (folder / child.name).symlink_to(child)
