"""Small checkpoints for tests, and ways to damage them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lockstep.runtime.state.checkpoint import MANIFEST, MODEL, TRAINER, Snapshot, write
from lockstep.runtime.state.position import Position

FILES = (MODEL, TRAINER, MANIFEST)


def snapshot(step: int, value: float | None = None, size: int = 64, best_step: int | None = None) -> Snapshot:
    """A snapshot whose weights all have one value, by default the step, so that a mixture would show."""
    number = float(step) if value is None else value
    tensors = {"net.weight": torch.full((size, 8), number), "net.bias": torch.full((8,), number)}
    trainer: dict[str, Any] = {
        "position": Position(step=step, best_step=best_step).to_dict(),
        "optimizer": {"state": {0: {"exp_avg": torch.full((size, 8), number)}}},
    }
    return Snapshot(step, tensors, {}, trainer, {"num_ranks": 2, "config": {"seed": 0}})


def written(folder: Path, *steps: int) -> list[Path]:
    """Whole checkpoints of these steps."""
    return [write(folder, snapshot(step)) for step in steps]


def names(folder: Path) -> list[str]:
    """What lies in a folder of checkpoints, in order."""
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path, position: int, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def truncate(path: Path, size: int) -> None:
    """Cut a file off."""
    path.write_bytes(path.read_bytes()[:size])


def become_folder(path: Path) -> None:
    """A folder of the same name in place of a file."""
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "its first bit is flipped": lambda path: flip(path, 0, 0),
    "a bit in the middle is flipped": lambda path: flip(path, path.stat().st_size // 2, 3),
    "its last bit is flipped": lambda path: flip(path, path.stat().st_size - 1, 0),
    "it is empty": lambda path: truncate(path, 0),
    "half of it is missing": lambda path: truncate(path, path.stat().st_size // 2),
    "its last byte is missing": lambda path: truncate(path, path.stat().st_size - 1),
    "a byte is added": lambda path: path.write_bytes(path.read_bytes() + b" ") and None,
    "it is deleted": lambda path: path.unlink(),
    "it is a folder": become_folder,
}
