"""What a program writes in its copy of a folder does not reach the folder."""

import os
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from lockstep.proof import sandbox
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
