"""Where a rank's output goes: a file for each rank, and for one of them, or for all, the terminal too."""

import atexit
import io
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from lockstep.core.errors import UserError, explain
from lockstep.runtime.logs import log_file

BAR_S = 10.0
"""A progress bar overwrites its line many times a second. A file gets its state once in so many seconds."""
_BEGIN = "---- rank "
_ESCAPE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")  # colours and moves of the cursor

_open: list["_Stream"] = []


def send_output(folder: Path, rank: int, shown: bool, prefix: bool = False) -> None:
    """Send all that this process writes to `rank-00000.log` of the rank, from now on.

    Processes that it starts inherit that. What Python writes appears at once, line by line. If the disk is full, what
    Python writes to the file is lost and nothing else happens.

    A rank that is shown writes to the terminal as before (it stays a terminal for progress bars), and its file gets a
    copy of what Python writes in this process and in those that it forks. What C code and other programs write
    is on the terminal only.

    Args:
        folder: where the log files are; it is made.
        rank: this rank.
        shown: whether it also writes to the terminal.
        prefix: for several ranks on one terminal: whole lines, behind `[rank 0] `. For the script it is no terminal.

    Raises:
        UserError: the file cannot be written.
    """
    path = log_file(folder, rank)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.write(log, f"{_BEGIN}{rank}, {time.strftime('%Y-%m-%d %H:%M:%S')}, process {os.getpid()}\n".encode())
    except OSError as error:
        raise UserError(
            explain(
                f"the log file of rank {rank} cannot be written: {error.strerror}",
                "every rank writes a log file of its own",
                str(path),
                "name another folder with `--log-dir`",
            )
        ) from error
    mark = f"[rank {rank}] ".encode() if shown and prefix else b""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = _take_over(getattr(sys, name), descriptor, log, shown, mark)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    atexit.register(finish_output)


def finish_output() -> None:
    """Write what is still held back: the last state of a progress bar. For a process that ends by `os._exit`."""
    for stream in _open:
        with suppress(OSError, ValueError):
            stream.finish()


class Lines:
    """Bytes as a terminal would show them at the end of each line: what a carriage return overwrites is dropped.

    Text without carriage returns passes at once, also the beginning of a line.

    Args:
        whole: let whole lines pass only.
        clock: seconds.
    """

    def __init__(self, whole: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._whole, self._clock = whole, clock
        self._held = b""
        self._begun = False
        self._passed_s = clock()

    def feed(self, data: bytes) -> bytes:
        """Take what was written. Returns: what is to be written now."""
        *whole, rest = (self._held + data).split(b"\n")
        self._held = b""
        out = b"".join(self._line(line) + b"\n" for line in whole)
        if whole:
            self._begun = False
        if b"\r" not in rest and not self._whole:
            self._begun = self._begun or bool(rest)
            return out + rest
        self._held = rest
        if b"\r" in rest and self._clock() - self._passed_s > BAR_S:
            out += self.end()
        return out

    def end(self) -> bytes:
        """What is held back, as a line."""
        held, self._held = self._held, b""
        out = self._line(held) + b"\n" if held.strip(b"\r") else b""
        self._begun = False
        return out

    def _line(self, line: bytes) -> bytes:
        if b"\r" not in line:
            return line
        self._passed_s = self._clock()
        shown = line.rstrip(b"\r").rpartition(b"\r")[2]
        # What has passed before the first carriage return stands in the file: the rest gets a line of its own.
        return b"\n" + shown if self._begun and line.rstrip(b"\r").count(b"\r") else shown


class _Stream(io.FileIO):
    """Standard output or error, as the bottom of a text stream: `fileno` and `isatty` are those of the descriptor."""

    def __init__(self, descriptor: int, log: int, shown: bool, mark: bytes) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._log, self._shown, self._mark = log, shown, mark
        self._lines = Lines(whole=bool(mark))
        self._pid = os.getpid()

    def write(self, data: Any, /) -> int:
        """Write to the terminal, the file, or both. Returns: how many bytes were taken."""
        taken = bytes(data)
        if self._pid != os.getpid():
            # Forked: what is held back is the parent's to write.
            self._lines, self._pid = Lines(whole=bool(self._mark)), os.getpid()
        if self._shown and not self._mark:
            taken = taken[: super().write(taken) or 0]
        self._give(self._lines.feed(taken))
        return len(taken)

    def isatty(self) -> bool:
        """Not where several ranks share it: a bar that moves the cursor would overwrite another rank's lines."""
        return not self._mark and super().isatty()

    def finish(self) -> None:
        """Write what is held back."""
        if self._pid == os.getpid():
            self._give(self._lines.end())

    def _give(self, text: bytes) -> None:
        left = _ESCAPE.sub(b"", text)
        with suppress(OSError):  # a full disk
            while left:
                left = left[os.write(self._log, left) :]
        if self._mark and text:
            lines = b"".join(self._mark + line + b"\n" for line in text.split(b"\n")[:-1])
            while lines:
                lines = lines[super().write(lines) or 0 :]


def _take_over(before: TextIO | None, descriptor: int, log: int, shown: bool, mark: bytes) -> TextIO:
    if before is not None:
        with suppress(OSError, ValueError):
            before.flush()
    if not shown:
        os.dup2(log, descriptor)
    raw = _Stream(descriptor, log, shown, mark)
    raw.name = "<stdout>" if descriptor == 1 else "<stderr>"
    _open.append(raw)
    encoding, errors = (before.encoding, before.errors) if before is not None else ("utf-8", "backslashreplace")
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=True)
