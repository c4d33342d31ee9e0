"""Damage of a saved file is seen from its bytes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lockstep.proof.whole import damage, is_archive


def put(path: Path) -> Path:
    """A file of the kind that its name says."""
    values = {"weight": torch.arange(600.0), "bias": torch.ones(3)}
    if path.suffix == ".safetensors":
        save_file(values, path)
    elif path.suffix == ".npz":
        np.savez(path, a=np.arange(500.0))
    elif path.suffix == ".json":
        path.write_text(json.dumps({"step": 3}))
    else:
        torch.save(values, path)
    return path


@pytest.mark.parametrize("name", ["a.pt", "model", "a.safetensors", "a.npz", "a.json"])
def test_half_a_file_is_damaged_and_a_whole_one_is_not(name: str, tmp_path: Path) -> None:
    path = put(tmp_path / name)
    whole = path.read_bytes()
    assert is_archive(path)
    assert damage(path) == ""
    for length in (len(whole) // 2, 9, 0):
        path.write_bytes(whole[:length])
        if path.suffix or length:
            assert damage(path) != "" or (not path.suffix and length < 2), length
    assert damage(path) == "it is empty"


def test_a_changed_byte_in_an_archive_is_seen(tmp_path: Path) -> None:
    path = put(tmp_path / "a.pt")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 1
    path.write_bytes(content)
    assert "is damaged" in damage(path)


def test_other_files_are_not_judged(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("half a li")
    assert not is_archive(log)
    old = tmp_path / "old.pt"
    torch.save({"a": 1}, old, _use_new_zipfile_serialization=False)
    assert damage(old) == ""
    with pytest.raises(FileNotFoundError):
        damage(tmp_path / "none.pt")
