"""Files that are whole or absent: written beside their name, flushed to disk, then renamed."""

import os
from pathlib import Path


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
