"""Batches of a run on disk, one after the other, for another run to yield again."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.trace import batches


@dataclass(frozen=True)
class Kept:
    """A batch as it is kept: what its root dataset is asked for, or where that is not known, its content."""

    keys: tuple[Any, ...] | None
    batch: Any

    @property
    def size(self) -> int | None:
        """Samples."""
        return len(self.keys) if self.keys is not None else batches.size_of(self.batch)

    def rows(self, start: int, end: int) -> "Kept":
        """Only these samples."""
        keys = self.keys[start:end] if self.keys is not None else None
        return Kept(keys, None if self.batch is None else batches.cut(self.batch, self.size or 0, start, end))

    @staticmethod
    def join(several: Sequence["Kept"]) -> "Kept":
        """One batch of several."""
        if len(several) == 1:
            return several[0]
        known = all(one.keys is not None for one in several)
        keys = tuple(key for one in several for key in one.keys or ()) if known else None
        content = all(one.batch is not None for one in several)
        return Kept(keys, batches.joined([one.batch for one in several]) if content else None)


def pass_file(folder: Path, stream: str, number: int) -> Path:
    """Where the batches of one pass are kept."""
    name = "".join(letter if letter.isalnum() else "-" for letter in stream)
    return folder / f"pass-{name}-{number}"


def streams_file(folder: Path) -> Path:
    """Where the names of the streams are kept, in order of first reading."""
    return folder / "streams"


def keep(path: Path, value: Any) -> None:
    """Append a value; what was appended before the process died is there. A file of ours, read by us alone."""
    with path.open("ab") as file:
        pickle.dump(value, file)


def kept(path: Path) -> list[Any]:
    """All values; a last one that was not written to its end is left out."""
    found = []
    with path.open("rb") as file:
        while True:
            try:
                found.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                return found
