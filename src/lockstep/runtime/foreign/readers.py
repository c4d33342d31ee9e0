"""Who reads what: the first reader that matches a path opens it."""

import os
from pathlib import Path
from typing import Protocol

from lockstep.runtime.foreign import dcp, files, model_folder, rank_shards
from lockstep.runtime.foreign.contents import Contents
from lockstep.runtime.foreign.own import Own, Run
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError

_SUFFIXES = {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar"}


class Reader(Protocol):
    """One kind of checkpoint."""

    @property
    def KIND(self) -> str:  # noqa: N802
        """Which, in words."""

    def matches(self, path: Path) -> bool:
        """Whether a path is of this kind, by the names in it."""

    def read(self, path: Path) -> Contents:
        """Open it; its tensors stay in their files."""


READERS: tuple[Reader, ...] = (files, Own, Run, dcp, rank_shards, model_folder)


def open_checkpoint(path: Path) -> Contents:
    """What a checkpoint of any kind holds.

    Raises:
        DamagedFileError: where it is one, and not whole.
        NoCheckpointError: where it is none; the message says what it is instead.
    """
    return reader_of(path).read(path)


def reader_of(path: Path) -> Reader:
    """Who opens a path.

    Raises:
        NoCheckpointError: nobody does.
    """
    try:
        if not path.exists():
            what = "a link to nothing" if path.is_symlink() else "not there"
            raise NoCheckpointError(f"{path} is {what}")
        if not os.access(path, os.R_OK):
            raise NoCheckpointError(f"{path} may not be read by this user")
        for reader in READERS:
            if reader.matches(path):
                return reader
    except OSError as error:
        raise NoCheckpointError(f"{path} cannot be looked at: {error.strerror}") from None
    raise NoCheckpointError(_folder(path))


def _folder(path: Path) -> str:
    if not path.is_dir():
        return f"{path} is neither a file nor a folder"
    inside = sorted(one.name for one in path.iterdir())
    if not inside:
        return f"{path} is an empty folder"
    found = [name for name in inside if Path(name).suffix in _SUFFIXES]
    if found:
        return f"{path} is a folder with {len(found)} checkpoints ({', '.join(found[:5])}); name one of them"
    if "latest" in inside and any(name.startswith("global_step") for name in inside):
        return f"{path} is a folder of DeepSpeed; zero_to_fp32.py, which lies in it, puts the weights together"
    return f"{path} is a folder without a checkpoint; in it: {', '.join(inside[:5])}"


__all__ = ["READERS", "DamagedFileError", "NoCheckpointError", "Reader", "open_checkpoint", "reader_of"]
