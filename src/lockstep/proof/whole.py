"""Whether a file that a run saved can still be read, from its bytes alone: nothing in it is executed."""

import json
import zipfile
from pathlib import Path

_ARCHIVES = (".npz", ".zip", ".pt", ".pth", ".ckpt", ".bin", ".tar")
_HEADER = 8
_LONGEST = 100 << 20


def is_archive(path: Path) -> bool:
    """Whether the file is of a kind that can be judged: what torch.save writes, safetensors, npz, JSON."""
    return path.suffix.lower() in (*_ARCHIVES, ".safetensors", ".json") or _begins(path, b"PK")


def damage(path: Path) -> str:
    """What is wrong with a file, "" where nothing is seen.

    Raises:
        OSError: it is not there, or may not be read.
    """
    size = path.stat().st_size
    if not size:
        return "it is empty"
    if path.suffix.lower() == ".json":
        return _json(path)
    if path.suffix.lower() == ".safetensors":
        return _safetensors(path, size)
    if _begins(path, b"PK"):
        return _zip(path)
    return ""  # the form that torch had before 1.6: only loading it would tell


def _begins(path: Path, bytes_: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(bytes_)) == bytes_


def _json(path: Path) -> str:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return "it is no JSON"
    return ""


def _zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, EOFError, NotImplementedError):
        return "its archive ends too early"
    return f"its record {bad} is damaged" if bad else ""


def _safetensors(path: Path, size: int) -> str:
    short = "it ends too early"
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_HEADER), "little")
        if size < _HEADER or not 0 < length <= min(size - _HEADER, _LONGEST):
            return short
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return "its header cannot be read"
    return short if size < _HEADER + length + max(ends, default=0) else ""
