"""Rank 0 speaks; every rank writes its own log file with rank and time."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from lockstep.core.errors import LockstepError

log = logging.getLogger("lockstep")


@contextmanager
def rank_logs(folder: Path, rank: int, all_ranks: bool = False) -> Iterator[None]:
    """Route this rank's messages and prints for the length of the block.

    Everything logged goes to `rank-00000.log` of the rank, also the error that ends the block. Rank 0 also shows it;
    the other ranks' prints go to their file, or with `all_ranks` to the screen behind `[rank 1]`.

    Args:
        folder: where the log files are.
        rank: this rank.
        all_ranks: show what every rank says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = log_file(folder, rank)
    file = _File(path, encoding="utf-8")
    file.setFormatter(
        logging.Formatter(f"%(asctime)s.%(msecs)03d rank {rank} %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    )
    handlers: list[logging.Handler] = [file]
    root = logging.getLogger()
    level = root.level
    with _speech(path, rank, all_ranks):
        if rank == 0 or all_ranks:
            screen = _Screen()
            screen.setFormatter(logging.Formatter("%(message)s"))
            screen.addFilter(lambda record: not getattr(record, "file_only", False))
            handlers.append(screen)
        for handler in handlers:
            root.addHandler(handler)
        root.setLevel(logging.INFO)
        logging.captureWarnings(True)
        try:
            yield
        except BaseException as error:
            # The launcher shows it; here stands what it shows, and the traceback of what nobody foresaw.
            trace = None if isinstance(error, LockstepError) else error
            log.error("rank %d failed: %s", rank, error, exc_info=trace, extra={"file_only": True})
            raise
        finally:
            logging.captureWarnings(False)
            root.setLevel(level)
            for handler in handlers:
                root.removeHandler(handler)
            file.close()


def log_file(folder: Path, rank: int) -> Path:
    """The log file of a rank, whoever writes it."""
    return folder / f"rank-{rank:05d}.log"


@contextmanager
def _speech(path: Path, rank: int, all_ranks: bool) -> Iterator[None]:
    """Where print() and what native code writes go."""
    if all_ranks:
        before = sys.stdout, sys.stderr
        ours = _Prefixed(sys.stdout, rank), _Prefixed(sys.stderr, rank)
        sys.stdout, sys.stderr = ours
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            for stream in ours:
                stream.end()
    elif rank == 0:
        yield
    else:
        with path.open("a", encoding="utf-8") as file, _redirected(1, file), _redirected(2, file):
            yield


@contextmanager
def _redirected(descriptor: int, file: TextIO) -> Iterator[None]:
    stream = sys.stdout if descriptor == 1 else sys.stderr
    stream.flush()
    kept = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        stream.flush()
        os.dup2(kept, descriptor)
        os.close(kept)


class _File(logging.FileHandler):
    """A log file whose disk may fill up: what cannot be written is lost, and nothing else."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say nothing: the default prints a traceback for each message."""

    def close(self) -> None:
        """Close the file; what is still unwritten is lost too."""
        with suppress(OSError):
            super().close()


class _Screen(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stdout` is at the moment: a progress bar puts itself in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """The current standard output."""
        return sys.stdout

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say nothing: whoever read the output (`| head`) has gone."""


class _Prefixed:
    """A text stream that puts the rank before every line, and writes whole lines only: several ranks share a screen."""

    def __init__(self, stream: TextIO, rank: int) -> None:
        self._stream, self._prefix, self._begun = stream, f"[rank {rank}] ", ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        if whole:
            self._stream.write("".join(f"{self._prefix}{line}\n" for line in whole))
            self._stream.flush()
        return len(text)

    def end(self) -> None:
        if self._begun:
            self.write("\n")

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
