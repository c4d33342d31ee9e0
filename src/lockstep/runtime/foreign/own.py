"""Our own folders: a checkpoint, and a run with its checkpoints."""

import json
from pathlib import Path

from lockstep.runtime.foreign import files, rank_shards
from lockstep.runtime.foreign.contents import Contents
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError
from lockstep.runtime.state.checkpoint import (
    EMA,
    MANIFEST,
    MODEL,
    SHARDS,
    TRAINER,
    UNFINISHED,
    DamagedError,
    listing,
    newest_whole,
    verify,
)

CHECKPOINTS = "checkpoints"


class Run:
    """A run's folder, or its folder of checkpoints: the newest one that is whole."""

    KIND = "run of Lockstep"

    @staticmethod
    def matches(path: Path) -> bool:
        """Whether checkpoints lie in it, or were about to."""
        folder = checkpoints_of(path)
        return bool(listing(folder)) or any(folder.glob(f"{UNFINISHED}*"))

    @staticmethod
    def read(path: Path) -> Contents:
        """The newest checkpoint that is whole.

        Raises:
            DamagedFileError: where none is.
        """
        folder = checkpoints_of(path)
        newest, refused = newest_whole(folder)
        if newest is None:
            what = "; ".join(refused) or "the only one is half-written: its writer was killed"
            raise DamagedFileError(f"{folder}: no checkpoint is whole: {what}")
        contents = _opened(newest)
        others = [one.name for one in listing(folder) if one != newest]
        best = folder / "best"
        contents.notes += [f"passed over: {damage}" for damage in refused]
        others += [f"best -> {best.readlink()}"] if best.is_symlink() else []
        if others:
            contents.facts["also there"] = ", ".join(others)
        return contents


class Own:
    """One checkpoint."""

    KIND = "checkpoint of Lockstep"

    @staticmethod
    def matches(path: Path) -> bool:
        """Whether a folder has the files of one, or the name of one that is half-written."""
        return path.name.startswith(UNFINISHED) or ((path / MANIFEST).is_file() and (path / TRAINER).exists())

    @staticmethod
    def read(path: Path) -> Contents:
        """The weights, the optimizer, and what the manifest says; a byte that is not as written is told.

        Raises:
            DamagedFileError: where a file is missing or cannot be read.
            NoCheckpointError: where its writer was killed.
        """
        if path.name.startswith(UNFINISHED):
            raise NoCheckpointError(half_written(path), "take a finished one, which lies beside it")
        contents = _opened(path)
        try:
            verify(path)
        except DamagedError as damage:
            contents.damage = str(damage)
        return contents


def _opened(path: Path) -> Contents:
    for name in (MODEL, TRAINER):
        if not (path / name).is_file():
            raise DamagedFileError(f"{path / name} is missing")
    shards = rank_shards.read(path / SHARDS).groups[""] if (path / SHARDS).is_dir() else {}
    kept = {name.rpartition(".")[2] for name in shards if name.startswith("optimizer.")}
    model, trainer = files.read(path / MODEL), files.read(path / TRAINER, kept)
    contents = Contents(path, Own.KIND, {"model": model.groups[""]}, "model", _facts(path))
    contents.merged({name: group for name, group in trainer.groups.items() if name}, trainer)
    if (path / EMA).is_file():
        contents.merged({"ema": files.read(path / EMA).groups[""]})
    if (path / SHARDS).is_dir():
        contents.merged({"optimizer.shards": shards})
    return contents


def half_written(path: Path) -> str:
    """What is said of a folder whose writer was killed."""
    return f"{path} is half-written: its writer was killed, or is still at it"


def checkpoints_of(path: Path) -> Path:
    """The folder of checkpoints of a run."""
    return path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path


def _facts(path: Path) -> dict[str, object]:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest, dict):
            raise ValueError("it is no table")
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path / MANIFEST} cannot be read: {error}") from None
    wanted = ("step", "epoch", "best", "num_ranks")
    return {key: manifest[key] for key in wanted if isinstance(manifest.get(key), int | float | str)}
