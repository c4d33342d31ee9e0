"""Files that the script touches: Python's audit events, and torch.save and torch.load, whose C++ half raises none."""

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lockstep.trace.events import File
from lockstep.trace.recorder import Recorder

MOST_READS = 1000
"""Different files whose first reading is told."""
MOST_TOUCHES = 20_000
"""Events in all, so that a script that writes a file a sample does not fill the disk with its trace."""

INSIDE = threading.local()
"""`busy` is set in a thread whose files are the tool's own business, or part of what is told already."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_CACHES = (".cache", ".config", ".triton", ".local")
_CODE = (".py", ".pyc", ".pyo", ".so")
_INSTALLED = ("site-packages", "dist-packages", "__pycache__", "torchinductor_")  # anywhere in a path


def install(recorder: Recorder) -> None:
    """Hook files. The audit hook stays for the life of the process; it is still when the recorder is."""
    files = _Files(recorder)
    sys.addaudithook(files.audit)
    recorder.patch(torch, "save", lambda original: files.around(original, "save", 1))
    recorder.patch(torch, "load", lambda original: files.around(original, "load", 0))


class _Files:
    """What has been touched so far, and what to tell of it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._cwd = _folder(str(Path.cwd()))
        self._foreign = _foreign(self._cwd, recorder.folder)
        self._wrote: set[str] = set()
        self._read: set[str] = set()
        self._left = MOST_TOUCHES
        self._handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._opened,
            "os.mkdir": lambda args: self._touched("mkdir", args[0], args[2]),
            "os.rename": lambda args: self._touched("rename", args[0], args[2], args[1]),
            "os.remove": lambda args: self._touched("remove", args[0], args[1]),
            "shutil.rmtree": lambda args: self._touched("remove", args[0]),
            "os.symlink": lambda args: self._touched("write", args[1], args[2]),
            "os.link": lambda args: self._touched("write", args[1], args[3]),
        }

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Python calls this at every audited event, before what it announces happens."""
        handler = self._handlers.get(event)
        if handler is None or not self._recorder.alive or getattr(INSIDE, "busy", False):
            return
        INSIDE.busy = True
        try:
            handler(args)
        except Exception:
            self._left = 0  # what fails once would fail again; the script must not notice
        finally:
            INSIDE.busy = False

    def around(self, original: Callable[..., Any], op: str, position: int) -> Callable[..., Any]:
        """torch.save, torch.load: the file is their argument number `position`, by name `f`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._recorder.alive or getattr(INSIDE, "busy", False):
                return original(*args, **kwargs)
            path = self._path(args[position] if len(args) > position else kwargs.get("f"))
            exists, began, ended = bool(path) and Path(path).exists(), time.time(), 0.0
            where = kwargs.get("map_location", args[1] if op == "load" and len(args) > 1 else None)
            INSIDE.busy = True  # what it opens itself is part of it
            try:
                result = original(*args, **kwargs)
                ended = time.time()
                return result
            finally:
                INSIDE.busy = False
                if path:
                    place = "" if where is None else str(where)
                    self._tell(File(op=op, path=path, time=began, end=ended, exists=exists, map_location=place))

        return call

    def _opened(self, args: tuple[Any, ...]) -> None:
        raw, mode, flags = args
        flags = flags if isinstance(flags, int) else 0
        if flags & _WRITING or (isinstance(mode, str) and set(mode) & set("wax+")):
            self._touched("write", raw, append=bool(flags & os.O_APPEND))
        elif len(self._read) < MOST_READS:
            self._reads(self._path(raw))

    def _reads(self, path: str) -> None:
        """Only the first reading of a file, and only where the user keeps files: data can be millions of them."""
        if path in self._read or path.endswith(_CODE):
            return
        ours = path.startswith(self._cwd) or path in self._wrote or str(Path(path).parent) in self._wrote
        # Only what is there as a file: shutil opens folders, by names that are relative to another folder.
        if ours and Path(path).is_file() and self._recorder.where():
            self._read.add(path)
            self._tell(File(op="read", path=path, exists=True))

    def _touched(self, op: str, raw: Any, descriptor: int = -1, target: Any = "", append: bool = False) -> None:
        if descriptor not in (-1, None):  # relative to an open folder, whose name nobody tells
            return
        path = self._path(raw)
        aim = self._path(target) if target else ""
        if path or aim:
            exists = Path(path).exists()
            if op in ("write", "rename") and len(self._wrote) < MOST_TOUCHES:
                self._wrote |= {aim or path, str(Path(aim or path).parent)}
            self._tell(File(op=op, path=path, target=aim, exists=exists, append=append))

    def _tell(self, event: File) -> None:
        if self._left > 0:
            self._left -= 1
            self._recorder.emit(event)

    def _path(self, raw: Any) -> str:
        """Absolute; "" for what is no path, and for files that are not the user's."""
        if not isinstance(raw, str | bytes | os.PathLike):
            raw = getattr(raw, "name", None)
        if not isinstance(raw, str | bytes | os.PathLike):
            return ""
        path = os.path.normpath(Path(os.fsdecode(raw)).absolute())
        installed = any(part in path for part in _INSTALLED)
        return "" if installed or path.startswith(self._foreign) else path


def _foreign(cwd: str, trace: Path) -> tuple[str, ...]:
    """Beginnings of paths that belong to the system, to Python, to the trace, to caches (libraries guard their own)."""
    installed = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    caches = {_folder(str(Path.home() / name)) for name in _CACHES}
    others = (_folder(one) for one in (*installed, str(trace.absolute()), "/proc", "/dev", "/sys"))
    return (*others, *(cache for cache in caches if not cwd.startswith(cache)))


def _folder(path: str) -> str:
    return path.rstrip(os.sep) + os.sep
