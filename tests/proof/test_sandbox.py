"""What a program writes in its copy of a folder does not reach the folder."""

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lockstep.proof import sandbox
from tests.permissions import obey_permissions
from tests.proof.apart import apart

BIG = sandbox.COPIED // 4 + 1  # floats


def make(source: Path, elsewhere: Path) -> None:
    """A folder with large files, and with a link to a folder elsewhere."""
    source.mkdir()
    elsewhere.mkdir()
    (source / "small.txt").write_text("mine")
    np.save(source / "large.npy", np.zeros(BIG, np.float32))
    torch.save({"w": torch.zeros(BIG)}, source / "large.pt")
    save_file({"w": torch.zeros(BIG)}, source / "large.safetensors")
    (elsewhere / "last.pt").write_text("mine")
    (source / "checkpoints").symlink_to(elsewhere)


def write_all(source: Path, target: Path) -> list[bool]:
    """Overwrite everything in a copy; returns what was linked before."""
    sandbox.copy_folder(source, target)
    names = ["small.txt", "large.npy", "large.pt", "large.safetensors", "checkpoints"]
    linked = [(target / name).is_symlink() for name in names]
    sandbox.guard_links(target)
    os.chdir(target)
    assert float(torch.load("large.pt")["w"].sum()) == 0
    with Path("large.npy").open("r+b") as file:
        file.write(b"other")
    Path("small.txt").write_text("other")
    torch.save({"w": torch.ones(2)}, "large.pt")
    from safetensors import torch as of_torch

    of_torch.save_file({"w": torch.ones(2)}, "large.safetensors")
    assert Path("checkpoints/last.pt").read_text() == "mine"
    Path("checkpoints/last.pt").write_text("other")
    Path("checkpoints/deeper").mkdir()
    torch.save(1, "checkpoints/new.pt")
    Path("checkpoints/new.pt").replace("checkpoints/newest.pt")
    assert sorted(path.name for path in Path("checkpoints").iterdir()) == ["deeper", "last.pt", "newest.pt"]
    return linked


def test_nothing_reaches_the_users_own_files(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    make(source, elsewhere)
    before = {path: path.read_bytes() for folder in (source, elsewhere) for path in folder.rglob("*") if path.is_file()}
    linked = apart(write_all, source, tmp_path / "copy", folder=tmp_path)
    assert linked == [False, True, True, True, True]
    assert (source / "checkpoints").is_symlink()
    assert [path.name for path in elsewhere.iterdir()] == ["last.pt"]
    assert all(path.read_bytes() == content for path, content in before.items())
    assert float(load_file(tmp_path / "copy" / "large.safetensors")["w"].sum()) == 2


def write_beside(source: Path, root: Path) -> list[str]:
    """Read and write by `..` from a copy; returns what was read."""
    target = sandbox.copy_with_surroundings(source, root)
    sandbox.guard_links(root)
    os.chdir(target)
    read = [Path("../data/a.txt").read_text(), Path("../../top.txt").read_text()]
    Path("../data/a.txt").write_text("other")
    torch.save(1, "../data/new.pt")
    Path("../results").mkdir()
    Path("../results/b.txt").write_text("other")
    return [*read, Path("../data/a.txt").read_text()]


def test_what_lies_beside_the_folder_is_found_and_left_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "code" / "project"
    (source.parent / "data").mkdir(parents=True)
    source.mkdir()
    (source / "train.py").write_text("")
    (source.parent / "data" / "a.txt").write_text("mine")
    (tmp_path / "top.txt").write_text("above")
    assert apart(write_beside, source, tmp_path / "root", folder=tmp_path) == ["mine", "above", "other"]
    assert sorted(path.name for path in source.parent.iterdir()) == ["data", "project"]
    assert [path.name for path in (source.parent / "data").iterdir()] == ["a.txt"]
    assert (source.parent / "data" / "a.txt").read_text() == "mine"
    assert sandbox.inside(tmp_path / "root", source).joinpath("train.py").is_file()


def change(source: Path, target: Path) -> list[str]:
    """Everything that changes a file without opening it; returns what a copy holds then."""
    sandbox.copy_folder(source, target)
    assert all(path.is_symlink() for path in target.iterdir())
    sandbox.guard_links(target)
    os.chdir(target)
    os.truncate("truncated.bin", 3)
    Path("modes.bin").chmod(0o600)
    os.utime("times.bin", (1, 1))
    Path("removed.bin").unlink()
    Path("moved.bin").rename("moved-on.bin")
    with closing(sqlite3.connect("data.sqlite")) as database:
        database.execute("create table other (number)")
        database.commit()
    mapped = np.memmap("mapped.bin", dtype=np.uint8, mode="r+", shape=(4,))
    mapped[:] = 7
    mapped.flush()
    os.chdir("folder")
    Path("new.txt").write_text("other")
    Path("old.txt").write_text("other")
    os.chdir("..")
    return sorted(str(path.relative_to(target)) for path in target.rglob("*"))


def test_what_changes_files_without_opening_them_does_not_reach_them(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    (elsewhere / "old.txt").write_text("mine")
    (source / "folder").symlink_to(elsewhere)
    for name in ("truncated", "modes", "times", "removed", "moved", "mapped"):
        (source / f"{name}.bin").write_bytes(bytes(sandbox.COPIED + 1))
    with closing(sqlite3.connect(source / "data.sqlite")) as database:
        database.execute("create table mine (content)")
        database.execute("insert into mine values (zeroblob(?))", [sandbox.COPIED])
        database.commit()
    before = seen(source), seen(elsewhere)
    names = apart(change, source, tmp_path / "copy", folder=tmp_path)
    assert (seen(source), seen(elsewhere)) == before
    assert "removed.bin" not in names
    assert {"moved-on.bin", "folder/new.txt"} <= set(names)
    assert (tmp_path / "copy" / "truncated.bin").read_bytes() == bytes(3)


def seen(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """{path: mode, time, content} of all that a folder holds."""
    found = {}
    for path in folder.rglob("*"):
        told = path.lstat()
        found[str(path)] = told.st_mode, told.st_mtime_ns, path.read_bytes() if path.is_file() else b""
    return found


def own_link(root: Path) -> str:
    """A link that the script itself makes, in its copy and to it, is written through."""
    sandbox.guard_links(root)
    os.chdir(root)
    (root / "run").mkdir()
    (root / "run" / "last.txt").write_text("old")
    Path("latest.txt").symlink_to(root / "run" / "last.txt")
    Path("latest.txt").write_text("new")
    return (root / "run" / "last.txt").read_text()


def test_a_link_of_the_script_s_own_stays_one(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    assert apart(own_link, tmp_path / "copy", folder=tmp_path) == "new"
    assert (tmp_path / "copy" / "latest.txt").is_symlink()


def test_odd_things_in_a_folder(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "copy"
    (source / "sub" / "deep").mkdir(parents=True)
    (source / "sub" / "deep" / "a.txt").write_text("a")
    (source / "itself").symlink_to(source / "itself")
    (source / "above").symlink_to(source)
    (source / "sub" / "above").symlink_to("..")
    (source / "nowhere").symlink_to(tmp_path / "nowhere")
    (source / "linked.txt").symlink_to("sub/deep/a.txt")
    (source / "__pycache__").mkdir()
    os.mkfifo(source / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as one:
        here = Path.cwd()
        os.chdir(source)  # the path of a socket has to be short
        one.bind("socket")
        os.chdir(here)
    before = sorted(source.rglob("*"))
    sandbox.copy_folder(source, target)
    assert (target / "sub" / "deep" / "a.txt").read_text() == "a"
    assert (target / "linked.txt").read_text() == "a"
    assert not (target / "linked.txt").is_symlink()
    assert (target / "above").resolve() == source
    assert not (target / "__pycache__").exists()
    assert not (target / "nowhere").exists()
    assert sorted(source.rglob("*")) == before


def test_a_folder_may_hold_the_place_of_its_own_copy(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    sandbox.copy_folder(tmp_path, tmp_path / "temporary" / "copy")
    assert [path.name for path in (tmp_path / "temporary" / "copy").iterdir()] == ["a.txt"]


def unreadable(source: Path, target: Path) -> list[str]:
    obey_permissions()
    sandbox.copy_folder(source, target)
    return sorted(path.name for path in target.iterdir())


def test_what_only_others_may_read_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "closed").mkdir(parents=True)
    (source / "closed" / "a.txt").write_text("a")
    (source / "secret.txt").write_text("s")
    (source / "open.txt").write_text("o")
    for name in ("closed", "secret.txt"):
        (source / name).chmod(0)
    names = apart(unreadable, source, tmp_path / "copy", folder=tmp_path)
    (source / "closed").chmod(0o700)
    assert "open.txt" in names
    assert not (tmp_path / "copy" / "secret.txt").is_file()


def test_beyond_a_number_of_files_folders_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_FILES", 3)
    source, target = tmp_path / "source", tmp_path / "copy"
    for name in ("a", "b"):
        (source / name / "deep").mkdir(parents=True)
        for number in range(5):
            (source / name / f"{number}.txt").write_text("a")
    sandbox.copy_folder(source, target)
    assert sorted(path.is_symlink() for path in target.glob("?/deep")) == [False, True]
    assert len(list(target.glob("?/*.txt"))) == 10


def test_beyond_a_number_of_bytes_small_files_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "COPIED_IN_ALL", 25)
    source, target = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.txt").write_text("ten bytes.")
    sandbox.copy_folder(source, target)
    assert [path.is_symlink() for path in target.iterdir()].count(True) == 2
    assert all(path.read_text() == "ten bytes." for path in target.iterdir())
