"""What a rank leaves behind for its launcher: a failure, or the word that its work is done."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

FAILURES_ENV = "LOCKSTEP_FAILURES"
"""Names the folder of the records. Without it (plain torchrun) a rank leaves none."""

Kind = Literal["user", "run", "exception", "exit", "interrupt", "consequence", "stall"]


@dataclass(frozen=True)
class Failure:
    """How one rank failed, in its own words.

    rank: the global rank. kind: `user` and `run` are explained errors of ours, `exception` any other, `exit` a
    `sys.exit` with a code, `interrupt` a Ctrl-C, `consequence` a connection lost to a rank that failed before, `stall`
    what the launcher saw from outside.
    message: one or more lines. where: `file:line in function`, the user's frame if there is one, else "".
    phase: what the rank was doing (the notes of the exception), or "". traceback: the user's frames only.
    time_ns: wall clock, nanoseconds since the epoch. exit_code: what the rank exits with, never 0.
    others: what the other ranks did, advice: what to try next, where the launcher knows better than the record tells.
    """

    rank: int
    kind: Kind
    message: str
    where: str
    phase: str
    traceback: str
    time_ns: int
    exit_code: int
    others: str = ""
    advice: str = ""

    @property
    def explained(self) -> bool:
        """Whether the message speaks for itself, so that no traceback is shown."""
        return self.kind in ("user", "run")


def failures_folder() -> Path | None:
    """The folder for this rank's record, or None where no launcher of ours asks for one."""
    named = os.environ.get(FAILURES_ENV)
    return Path(named) if named else None


def write_failure(folder: Path, failure: Failure, full_traceback: str) -> None:
    """Leave the record, and the whole traceback in a text file beside it.

    A full or vanished disk must not hide the failure itself: the exit code still tells, so errors are dropped.
    """
    with suppress(OSError):
        _replace(folder / f"rank-{failure.rank}.json", json.dumps(asdict(failure)))
    with suppress(OSError):
        if full_traceback:
            _replace(traceback_file(folder, failure.rank), full_traceback)


def write_done(folder: Path, rank: int, where: str = "") -> None:
    """Say that the work of this rank is complete: what comes after can only be an abort in tear-down.

    An empty file, which a full disk still takes; with the line that ended the work where that is known.
    """
    with suppress(OSError):
        (folder / f"rank-{rank}.done").touch()
        if where:
            (folder / f"rank-{rank}.done").write_text(where, encoding="utf-8", errors="backslashreplace")


def read_failures(folder: Path) -> list[Failure]:
    """All records in the folder, in the order of ranks; what cannot be read is left out."""
    found = []
    for path in folder.glob("rank-*.json"):
        with suppress(OSError, ValueError, TypeError):
            found.append(Failure(**json.loads(path.read_text(encoding="utf-8"))))
    return sorted(found, key=lambda failure: failure.rank)


def is_done(folder: Path, rank: int) -> bool:
    """Whether this rank has said that its work is complete."""
    return (folder / f"rank-{rank}.done").exists()


def done_at(folder: Path, rank: int) -> str:
    """The line that ended the work of this rank; "" where it came to its end, or has not."""
    with suppress(OSError):
        return (folder / f"rank-{rank}.done").read_text(encoding="utf-8")
    return ""


def has_failed(folder: Path, rank: int) -> bool:
    """Whether this rank has left a failure."""
    return (folder / f"rank-{rank}.json").exists()


def traceback_file(folder: Path, rank: int) -> Path:
    """Where the whole traceback of a rank lies."""
    return folder / f"rank-{rank}.traceback.txt"


def crash_file(folder: Path, rank: int) -> Path:
    """Where a rank that dies of SIGSEGV, SIGABRT or the like leaves its Python stack; empty if it does not."""
    return folder / f"rank-{rank}.crash.txt"


def stack_file(folder: Path, rank: int) -> Path:
    """Where a rank writes its stacks when a signal asks for them: some machines forbid to read them from outside."""
    return folder / f"rank-{rank}.stacks"


def _replace(path: Path, text: str) -> None:
    """Write beside, then rename: the launcher never reads half a record."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8", errors="backslashreplace")
    beside.replace(path)
