"""Files that are whole or absent: written beside their name, flushed to disk, then renamed."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstep.core.errors import UserError, explain

_LOCK = ".in-use"


def flush(path: Path) -> None:
    """Force a file's or folder's content to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_durably(source: Path, target: Path) -> None:
    """Rename within one folder; after return the new name survives a power cut."""
    source.replace(target)
    flush(target.parent)


def write_text(path: Path, text: str) -> None:
    """Write a small text file; a reader sees the old content or the new, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        flush(beside)
        rename_durably(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def put_text(path: Path, text: str) -> None:
    """Write a file that a user has named: whole or not at all, but what is no ordinary file stays what it is.

    A device, a pipe or what a link points to is written into.

    Raises:
        OSError: where it cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
    else:
        write_text(path, text)


def put_asked(path: Path, text: str, option: str) -> None:
    """The same for the value of an option.

    Raises:
        UserError: where it cannot be written.
    """
    with _told(path, option):
        put_text(path, text)


def check_writable(path: Path, option: str) -> None:
    """Try it before minutes of work; a file that is not there is begun.

    Raises:
        UserError: where it cannot be written.
    """
    with _told(path, option), path.open("a", encoding="utf-8"):
        pass


@contextmanager
def _told(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        must = "a file with write access"
        raise UserError(explain(f"{path} cannot be written: {error.strerror}", must, option)) from None


def reserve_folder(wanted: Path, option: str) -> Path:
    """Make a folder; another name where one that was started in the same second has it already.

    Args:
        wanted: its name. option: how a user names another one.

    Raises:
        UserError: where it cannot be made.
    """
    for number in range(1, 1000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            seen = f"{folder} cannot be made: {error.strerror}"
            raise UserError(explain(seen, "a folder with write access", next_step=f"set {option}")) from None
        return folder
    raise UserError(explain(f"{wanted} and 999 names like it are taken", next_step=f"set {option}"))


@contextmanager
def in_use(folder: Path, what: str) -> Iterator[None]:
    """Keep a folder for this process, and for those that it forks, as long as the block runs.

    Args:
        folder: it is made. what: a word for it, in the message.

    Raises:
        UserError: where another process has it.
    """
    lock = -1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.write(lock, f"pid {os.getpid()} on {socket.gethostname()}".encode())
    except BlockingIOError:
        holder = os.read(lock, 200).decode(errors="replace")
        os.close(lock)
        seen = f"{folder} is in use, by {holder or 'another process'}"
        raise UserError(explain(seen, f"one at a time writes to {what}", next_step="wait for its end")) from None
    except OSError:
        pass  # a disk without locks, or one that cannot be written: that is told where something is written
    try:
        yield
    finally:
        if lock >= 0:
            with suppress(OSError):
                (folder / _LOCK).unlink()
            os.close(lock)
