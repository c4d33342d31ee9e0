"""Whether a checkpoint is whole: every byte of ours against its SHA-256, every other as far as its format can tell."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lockstep.core.digest import file_digest
from lockstep.runtime.foreign import dcp, files, model_folder, rank_shards
from lockstep.runtime.foreign.contents import Contents
from lockstep.runtime.foreign.own import Own, Run, checkpoints_of, half_written
from lockstep.runtime.foreign.readers import reader_of
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError
from lockstep.runtime.state.checkpoint import BEST, UNFINISHED, DamagedError, listing, newest_whole, verify

State = Literal["whole", "damaged", "left over", "refused", "unsure", "note"]


@dataclass(frozen=True)
class Checked:
    """What was found out about a file or folder.

    Attributes:
        path: which. state: how it is; `left over` and `note` are no damage; `unsure` is whole, and calls functions that
            nobody here knows when it is read with pickle.
        detail: what was checked, or what is wrong.
    """

    path: Path
    state: State
    detail: str


def check(path: Path) -> Iterator[Checked]:
    """Check everything under a path, one after the other.

    Raises:
        NoCheckpointError: where there is none.
    """
    reader = reader_of(path)
    if reader is Run:
        yield from _run(checkpoints_of(path))
    elif reader is Own:
        yield replace(_half(path), state="damaged") if path.name.startswith(UNFINISHED) else _own(path)
    elif reader in (dcp, rank_shards):
        yield _opened(path, "every shard of every tensor can be read")
    elif reader is model_folder:
        yield from _model_folder(path)
    else:
        yield _file(path)


def _run(folder: Path) -> Iterator[Checked]:
    for path in listing(folder):
        yield _own(path)
    for path in sorted(folder.glob(f"{UNFINISHED}*")):
        yield _half(path)
    best = folder / BEST
    if best.is_symlink():
        there = best.exists()
        yield Checked(
            best, "whole" if there else "damaged", f"-> {best.readlink()}{'' if there else ', which is not there'}"
        )
    newest, _ = newest_whole(folder)
    taken = f"a resume takes {newest.name}" if newest else "a resume finds nothing to take"
    yield Checked(folder, "note" if newest else "damaged", taken)


def _half(path: Path) -> Checked:
    return Checked(path, "left over", half_written(path).removeprefix(f"{path} is ") + "; no reader takes it")


def _own(path: Path) -> Checked:
    try:
        files_of = verify(path)["files"]
    except DamagedError as damage:
        return Checked(path, "damaged", str(damage).removeprefix(f"{path}/"))
    known = {path / name for name in files_of} | {path / "manifest.json"}
    others = sorted(one.name for one in path.rglob("*") if one.is_file() and one not in known)
    more = f"; not of the checkpoint: {', '.join(others[:5])}" if others else ""
    return Checked(path, "whole", f"{len(files_of)} files as written (SHA-256){more}")


def _model_folder(path: Path) -> Iterator[Checked]:
    index = model_folder.index_of(path)
    if index is not None:
        yield _opened(path, f"every tensor that {index.name} names is there")
    shards = sorted(set(model_folder.weight_map(index).values())) if index is not None and _readable(index) else []
    for file in [*(path / name for name in shards), *([] if shards else model_folder.models_in(path))]:
        if file.is_file():
            yield _file(file)
    for file in model_folder.rest_in(path):
        yield _file(file)


def _readable(index: Path) -> bool:
    try:
        model_folder.weight_map(index)
    except DamagedFileError:
        return False
    return True


def _opened(path: Path, good: str) -> Checked:
    try:
        contents = reader_of(path).read(path)
        for group in contents.groups.values():
            for entry in group.values():
                entry.load()
    except (DamagedFileError, NoCheckpointError) as error:
        return Checked(path, "damaged", str(error).removeprefix(f"{path}: "))
    return _trusted(path, contents, good)


def _file(path: Path) -> Checked:
    try:
        contents = files.read(path)
    except DamagedFileError as error:
        return Checked(path, "damaged", str(error).removeprefix(f"{path}: "))
    if contents.damage:
        return Checked(path, "damaged", contents.damage)
    count = sum(len(group) for group in contents.groups.values())
    return _trusted(path, contents, f"{contents.kind}, {count} tensors; SHA-256 {file_digest(path)[:16]}...")


def _trusted(path: Path, contents: Contents, good: str) -> Checked:
    """What is said of bytes that are whole: pickle may do something with them all the same."""
    if contents.dangerous:
        return Checked(path, "refused", f"it would run {', '.join(contents.dangerous[:5])}: a trap")
    if contents.unknown:
        called = ", ".join(contents.unknown[:5])
        return Checked(path, "unsure", f"{good}; it calls {called} when it is read with pickle, which may do anything")
    return Checked(path, "whole", good)
