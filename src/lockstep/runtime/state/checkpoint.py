"""A checkpoint folder: written beside its name and renamed when whole; verified by SHA-256 before it is read.

step-00000120/
  model.safetensors   weights under clean names
  ema.safetensors     with ema.decay, the average of the weights in their place
  trainer.pt          optimizer, schedule, scaler, position (weights_only=True)
  shards/             with fsdp, the optimizer's tensors, a safetensors file by each rank
  manifest.json       step, config, versions, N, SHA-256 of the files and of itself
"""

import json
import pickle
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from lockstep.core.digest import file_digest, value_digest
from lockstep.core.errors import UserError, explain
from lockstep.core.files import flush, rename_durably
from lockstep.runtime.state.fellows import Fellows
from lockstep.runtime.state.weights import TIES, read_weights

MODEL, TRAINER, MANIFEST = "model.safetensors", "trainer.pt", "manifest.json"
EMA = "ema.safetensors"
SHARDS = "shards"
BEST = "best"
UNFINISHED, _REPLACED = ".writing-", ".replaced-"
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
        shards: this rank's part of what is split among the ranks, by name.
        ema: as `tensors`, the average of the weights in their place; empty where there is none.
    """

    step: int
    tensors: Mapping[str, Tensor]
    ties: Mapping[str, str]
    trainer: Mapping[str, Any]
    about: Mapping[str, Any]
    shards: Mapping[str, Tensor] = field(default_factory=dict)
    ema: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint, read into host memory."""

    path: Path
    tensors: dict[str, Tensor]
    trainer: dict[str, Any]
    manifest: dict[str, Any]


def name_of(step: int) -> str:
    """Name of the checkpoint after so many optimizer steps."""
    return f"step-{step:08d}"


def write(folder: Path, snapshot: Snapshot, fellows: Fellows | None = None) -> Path:
    """Write a checkpoint whole or not at all; a killed writer leaves a folder that no reader takes.

    Args:
        folder: the folder of checkpoints.
        snapshot: what is written.
        fellows: the ranks that write it together, all of which call this; None where one rank holds everything.

    Raises:
        OSError: where the disk is full or not writable; nothing is left behind then.
    """
    target = folder / name_of(snapshot.step)
    beside, replaced = (folder / f"{prefix}{target.name}" for prefix in (UNFINISHED, _REPLACED))
    leads = fellows is None or fellows.leads
    problem = _prepare(folder, beside) if leads else None
    if fellows is not None and (told := fellows.agree(str(problem or ""))):
        problem = problem or OSError(told)
    if problem is not None:
        raise problem
    try:
        if fellows is not None:
            fellows.save(beside / SHARDS, snapshot.shards)
        if leads:
            _write_files(beside, snapshot)
            if target.exists():
                target.replace(replaced)
            rename_durably(beside, target)
    except BaseException:
        if leads:
            shutil.rmtree(beside, ignore_errors=True)
        raise
    return target


def _prepare(folder: Path, beside: Path) -> OSError | None:
    """An empty folder to write into, or what is in its way."""
    shutil.rmtree(beside, ignore_errors=True)
    try:
        _put_back(folder)
        beside.mkdir(parents=True)
    except OSError as error:
        return error
    return None


def _put_back(folder: Path) -> None:
    """A writer killed between its two renames has left the old checkpoint, whole, under the name of a replaced one."""
    for replaced in folder.glob(f"{_REPLACED}*"):
        target = folder / replaced.name.removeprefix(_REPLACED)
        if target.exists():
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            rename_durably(replaced, target)


def _write_files(folder: Path, snapshot: Snapshot) -> None:
    try:
        metadata = {TIES: json.dumps(dict(snapshot.ties)), "format": "pt"}
        save_file(dict(snapshot.tensors), folder / MODEL, metadata)
        if snapshot.ema:
            save_file(dict(snapshot.ema), folder / EMA, metadata)
        with (folder / TRAINER).open("wb") as file:
            torch.save(dict(snapshot.trainer), file)
    except Exception as error:
        raise _os_error(error) from error
    weights = [MODEL, EMA] if snapshot.ema else [MODEL]
    names = [*weights, TRAINER, *sorted(str(path.relative_to(folder)) for path in (folder / SHARDS).glob("*"))]
    files = {name: file_digest(folder / name) for name in names}
    # As it will be read: JSON turns tuples into lists and every key into text.
    manifest = json.loads(json.dumps({**snapshot.about, "step": snapshot.step, "files": files}))
    (folder / MANIFEST).write_text(_rendered(manifest), encoding="utf-8")
    for name in (*names, MANIFEST):
        flush(folder / name)
    if (folder / SHARDS).is_dir():
        flush(folder / SHARDS)
    flush(folder)


def _os_error(error: BaseException) -> OSError:
    """What the system said: both libraries report a full disk with an error type of their own."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return cause or OSError(str(error))


def _rendered(manifest: Mapping[str, Any]) -> str:
    return json.dumps({**manifest, "digest": value_digest(manifest)}, indent=2)


def verify(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint that is whole.

    Raises:
        DamagedError: naming the file that is missing or differs from what was written.
    """
    try:
        text = (path / MANIFEST).read_text(encoding="utf-8")
        manifest = json.loads(text)
        del manifest["digest"]
        files = dict(manifest["files"])
    except FileNotFoundError:
        raise DamagedError(f"{path / MANIFEST} is missing") from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedError(f"{path / MANIFEST} cannot be read: {error}") from None
    if _rendered(manifest) != text:
        raise DamagedError(f"{path / MANIFEST} differs from what was written")
    for name, expected in files.items():
        try:
            found = file_digest(path / name)
        except FileNotFoundError:
            raise DamagedError(f"{path / name} is missing") from None
        except OSError as error:
            raise DamagedError(f"{path / name} cannot be read: {error.strerror}") from None
        if found != expected:
            raise DamagedError(f"{path / name} differs from what was written (SHA-256)")
    return manifest  # type: ignore[no-any-return]


def read(path: Path) -> Checkpoint:
    """Verify a checkpoint and read it.

    Raises:
        DamagedError: where it is not whole.
        UserError: where it holds more than plain values.
    """
    manifest = verify(path)
    try:
        trainer = torch.load(path / TRAINER, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        must = "plain values and tensors; code in a checkpoint is never run"
        next_step = "let get_extra_state() of the model return plain values"
        where = str(path / TRAINER)
        raise UserError(explain(f"it cannot be read: {str(error).splitlines()[0]}", must, where, next_step)) from None
    return Checkpoint(path, read_weights(path / MODEL), trainer, manifest)


def listing(folder: Path) -> list[Path]:
    """The finished checkpoints of a run, newest first; one that is being replaced stands after its successor."""
    found = [(int(m[1]), p.name, p) for p in folder.glob("*step-*") if (m := _NAME.fullmatch(p.name)) and p.is_dir()]
    return [path for *_, path in sorted(found, reverse=True)]


def step_of(checkpoint: Path) -> int:
    """The optimizer steps that the name of a finished checkpoint tells."""
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None
    return int(match[1])


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


def prune(folder: Path, written: Path, keep_last: int) -> None:
    """Delete what nobody needs any more.

    Those stay: the newest `keep_last` and what the link `best` names, of `written` and what is older. Anything newer is
    of a past that this run does not go on from: the run was resumed before it, because it is damaged.

    Args:
        folder: the folder of checkpoints.
        written: the checkpoint that was finished just now.
        keep_last: how many.
    """
    _put_back(folder)
    finished = listing(folder)
    at = finished.index(written)
    best = (folder / BEST).resolve()
    for path in finished[:at] + finished[at + keep_last :]:
        if path.resolve() != best:
            shutil.rmtree(path)
    for path in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path)
    if not (folder / BEST).exists():
        (folder / BEST).unlink(missing_ok=True)


def point_to_best(folder: Path, step: int) -> None:
    """Let the link `best` name the best checkpoint."""
    beside = folder / ".best"
    beside.unlink(missing_ok=True)
    beside.symlink_to(name_of(step))
    rename_durably(beside, folder / BEST)
