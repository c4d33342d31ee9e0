"""Where events go: one file a rank, appended to in whole lines; and the tensors beside it."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.trace.events import Event
from lockstep.trace.trace import rank_file

_HELD, _HELD_S = 512, 0.5


class Sink:
    """Appends events to a rank's file. Events are held back until `flush`, at most 512 of them and half a second.

    What is flushed survives the death of the process (it is the kernel's), so flush before what may not return.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._held: list[Event] = []
        self._lock = threading.RLock()  # a thread, or a handler of a signal, may tell something in the middle of this
        self._flushed = 0.0

    def put(self, event: Event) -> None:
        """Take one event."""
        self._held.append(event)
        if len(self._held) >= _HELD or event.time - self._flushed > _HELD_S:
            self._flushed = event.time
            self.flush()

    def flush(self) -> None:
        """Hand everything to the kernel."""
        with self._lock:
            held, self._held = self._held, []
            if not held:
                return
            lines = [json.dumps({"e": type(event).__name__, **_told(event)}, default=_plain) for event in held]
            data = memoryview(("\n".join(lines) + "\n").encode())
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        os.close(self._descriptor)


def _told(event: Event) -> dict[str, Any]:
    """The fields that say something: defaults are left out."""
    kind = type(event)
    return {key: value for key, value in vars(event).items() if value != getattr(kind, key, _NOTHING)}


_NOTHING = object()


def _plain(value: Any) -> Any:
    """numpy numbers and paths, which json does not know."""
    return value.item() if isinstance(value, np.generic) else str(value)


class TensorFile:
    """Values beside the events, in numpy's own format one after the other, up to a number of bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        self._file = path.open("wb")
        self._left = limit

    def put(self, value: np.ndarray[Any, Any], reserve: int = 0) -> int:
        """Append; returns where it lies, or -1 when the file is full but for `reserve` bytes."""
        if value.nbytes > self._left - reserve:
            return -1
        self._left -= value.nbytes
        position = self._file.tell()
        np.save(self._file, value, allow_pickle=False)
        return position

    def flush(self) -> None:
        """Hand everything to the kernel."""
        self._file.flush()

    def close(self) -> None:
        """Hand over everything, and close."""
        self._file.close()


def tensor_file(folder: Path, rank: int) -> Path:
    """Where a rank keeps values."""
    return rank_file(folder, rank).with_suffix(".tensors")


def read_tensor(folder: Path, rank: int, position: int) -> np.ndarray[Any, Any] | None:
    """The value that an event points to; None where it was not kept."""
    if position < 0:
        return None
    with tensor_file(folder, rank).open("rb") as file:
        file.seek(position)
        try:
            value: np.ndarray[Any, Any] = np.load(file, allow_pickle=False)
        except (EOFError, ValueError):  # the process was killed before it was written
            return None
        return value
