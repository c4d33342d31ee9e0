"""A checkpoint folder: written beside its name and renamed when whole; verified by SHA-256 before it is read.

step-00000120/
  model.safetensors   weights under clean names
  trainer.pt          optimizer, schedule, scaler, position (weights_only=True)
  manifest.json       step, config, versions, N, SHA-256 of the files and of itself
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from lockstep.core.digest import file_digest, value_digest
from lockstep.core.files import flush, rename_durably
from lockstep.runtime.state.weights import TIES, read_weights

MODEL, TRAINER, MANIFEST = "model.safetensors", "trainer.pt", "manifest.json"
_UNFINISHED, _REPLACED = ".writing-", ".replaced-"
_NAME = re.compile(r"(?:\.replaced-)?step-(\d{8,})")


class DamagedError(ValueError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Snapshot:
    """Host copies of one moment of a run.

    Attributes:
        step: optimizer steps done.
        tensors: weights by clean name, contiguous, in host memory.
        ties: further names of tied weights.
        trainer: optimizer, schedule, scaler, position; plain values and tensors.
        about: config, versions, number of ranks; JSON.
    """

    step: int
    tensors: Mapping[str, Tensor]
    ties: Mapping[str, str]
    trainer: Mapping[str, Any]
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint, read into host memory."""

    path: Path
    tensors: dict[str, Tensor]
    trainer: dict[str, Any]
    manifest: dict[str, Any]


def write(folder: Path, snapshot: Snapshot) -> Path:
    """Write a checkpoint whole or not at all; a killed writer leaves a folder that no reader takes.

    Raises:
        OSError: where the disk is full or not writable; nothing is left behind then.
    """
    target = folder / f"step-{snapshot.step:08d}"
    beside = folder / f"{_UNFINISHED}{target.name}"
    for old in (beside, folder / f"{_REPLACED}{target.name}"):
        shutil.rmtree(old, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        _write_files(beside, snapshot)
        if target.exists():
            target.replace(folder / f"{_REPLACED}{target.name}")
        rename_durably(beside, target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return target


def _write_files(folder: Path, snapshot: Snapshot) -> None:
    try:
        save_file(dict(snapshot.tensors), folder / MODEL, {TIES: json.dumps(dict(snapshot.ties)), "format": "pt"})
        torch.save(dict(snapshot.trainer), folder / TRAINER)
    except OSError:
        raise
    except Exception as error:
        # Both libraries report a full disk with an error type of their own.
        raise OSError(str(error)) from error
    files = {name: file_digest(folder / name) for name in (MODEL, TRAINER)}
    manifest = {**snapshot.about, "step": snapshot.step, "files": files}
    text = json.dumps({**manifest, "digest": value_digest(manifest)}, indent=2)
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    for name in (MODEL, TRAINER, MANIFEST):
        flush(folder / name)
    flush(folder)


def verify(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint that is whole.

    Raises:
        DamagedError: naming the file that is missing or differs from what was written.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        digest = manifest.pop("digest")
        files = dict(manifest["files"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedError(f"{path / MANIFEST} cannot be read: {error}") from None
    if value_digest(manifest) != digest:
        raise DamagedError(f"{path / MANIFEST} differs from what was written")
    for name, expected in files.items():
        if not (path / name).is_file():
            raise DamagedError(f"{path / name} is missing")
        if file_digest(path / name) != expected:
            raise DamagedError(f"{path / name} differs from what was written (SHA-256)")
    return manifest  # type: ignore[no-any-return]


def read(path: Path) -> Checkpoint:
    """Verify a checkpoint and read it.

    Raises:
        DamagedError: where it is not whole.
    """
    manifest = verify(path)
    trainer = torch.load(path / TRAINER, map_location="cpu", weights_only=True)
    return Checkpoint(path, read_weights(path / MODEL), trainer, manifest)


def listing(folder: Path) -> list[Path]:
    """The finished checkpoints of a run, newest first; one that is being replaced stands after its successor."""
    found = [(int(m[1]), p.name, p) for p in folder.glob("*step-*") if (m := _NAME.fullmatch(p.name)) and p.is_dir()]
    return [path for *_, path in sorted(found, reverse=True)]


def newest_whole(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is whole, and why newer ones were passed over."""
    refused = []
    for path in listing(folder):
        try:
            verify(path)
        except DamagedError as damage:
            refused.append(str(damage))
        else:
            return path, refused
    return None, refused


def prune(folder: Path, keep_last: int, best_step: int | None) -> None:
    """Delete all but the newest `keep_last` checkpoints and the best, and what a killed writer left."""
    finished = [path for path in listing(folder) if not path.name.startswith(".")]
    for path in finished[keep_last:]:
        if best_step is None or path.name != f"step-{best_step:08d}":
            shutil.rmtree(path)
    for prefix in (_UNFINISHED, _REPLACED):
        for path in folder.glob(f"{prefix}*"):
            shutil.rmtree(path)


def point_to_best(folder: Path, step: int) -> None:
    """Let the link `best` name the best checkpoint."""
    beside = folder / ".best"
    beside.unlink(missing_ok=True)
    beside.symlink_to(f"step-{step:08d}")
    rename_durably(beside, folder / "best")
