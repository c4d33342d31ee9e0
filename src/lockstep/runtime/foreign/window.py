"""A stretch of a file, or of bytes in memory: where a tensor, or a file inside a file, lies."""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast


class DamagedFileError(ValueError):
    """A checkpoint that is not whole, or not what it says it is."""


class NoCheckpointError(ValueError):
    """Something else than a checkpoint.

    Args:
        seen: what it is, with its path. todo: what a user can do about it.
    """

    def __init__(self, seen: str, todo: str = "") -> None:
        super().__init__(seen)
        self.todo = todo


@dataclass(frozen=True)
class Window:
    """Bytes that are read when they are asked for.

    Attributes:
        source: a file, or bytes in memory.
        start: the first byte. nbytes: how many.
    """

    source: Path | bytes = field(repr=False)
    start: int
    nbytes: int

    @staticmethod
    def of(source: Path | bytes) -> "Window":
        """All of a file or of some bytes."""
        return Window(source, 0, len(source) if isinstance(source, bytes) else source.stat().st_size)

    @property
    def name(self) -> str:
        """For messages: the file's path."""
        return "bytes inside the file" if isinstance(self.source, bytes) else str(self.source)

    def part(self, offset: int, nbytes: int) -> "Window":
        """A stretch of this one.

        Raises:
            DamagedFileError: where it reaches beyond the end.
        """
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            missing = offset + nbytes - self.nbytes
            raise DamagedFileError(f"{self.name} ends {missing} bytes too early: it was cut off")
        return Window(self.source, self.start + offset, nbytes)

    def read(self, limit: int | None = None) -> bytearray:
        """Its bytes, or the first `limit` of them.

        Raises:
            DamagedFileError: where the file has fewer by now.
        """
        wanted = self.nbytes if limit is None else min(limit, self.nbytes)
        if isinstance(self.source, bytes):
            return bytearray(memoryview(self.source)[self.start : self.start + wanted])
        data = bytearray(wanted)
        with self.source.open("rb", buffering=0) as file:
            file.seek(self.start)
            view, filled = memoryview(data), 0
            while filled < wanted and (count := file.readinto(view[filled:])):
                filled += count
        if filled < wanted:
            raise DamagedFileError(f"{self.name} ends {wanted - filled} bytes too early: it was cut off")
        return data

    def open(self) -> BinaryIO:
        """A seekable file of just these bytes."""
        if isinstance(self.source, bytes):
            return io.BytesIO(self.read())
        return cast(BinaryIO, io.BufferedReader(_Slice(self.source, self.start, self.nbytes)))


class _Slice(io.RawIOBase):
    """A part of a file that looks like a whole one."""

    def __init__(self, path: Path, start: int, nbytes: int) -> None:
        super().__init__()
        self._file, self._start, self._nbytes, self._at = path.open("rb", buffering=0), start, nbytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._nbytes)[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._nbytes - self._at))
        self._file.seek(self._start + self._at)
        count = self._file.readinto(memoryview(buffer)[:wanted])
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
