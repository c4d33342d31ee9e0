"""A file is told by its first bytes, not by its name."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lockstep.runtime.foreign.files import form_of, matches, read
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError, Window
from tests.runtime.foreign.samples import lightning, net, trained, training


def test_kinds_are_told(tmp_path: Path) -> None:
    lightning(tmp_path / "a.ckpt")
    training(tmp_path / "b.pt")
    torch.save(net(), tmp_path / "c.pt")
    torch.save(trained()[1].state_dict(), tmp_path / "d.bin")
    torch.save({"rng_state": torch.get_rng_state()}, tmp_path / "e.pkl")
    save_file(net().state_dict(), tmp_path / "f.pt")  # a wrong ending
    (tmp_path / "g.pt").write_bytes(pickle.dumps(dict(net().state_dict())))
    kinds = [read(path).kind for path in sorted(tmp_path.iterdir())]
    assert kinds == [
        "Lightning checkpoint",
        "checkpoint of a training",
        "a whole model, pickled (torch.nn.modules.container.Sequential)",
        "state of an optimizer",
        "state of a training, without weights",
        "safetensors file",
        "state dict (pickle)",
    ]
    assert matches(tmp_path / "a.ckpt") and not matches(tmp_path)
    found = read(tmp_path / "a.ckpt")
    assert found.weights == "state_dict" and found.facts["hyper_parameters"] == "lr, width"
    assert read(tmp_path / "b.pt").origins[:2] == ["argparse.Namespace", "pathlib.PosixPath"]


def test_what_is_none_is_named_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "größe.pt"
    path.write_text("<!doctype html>")
    with pytest.raises(NoCheckpointError, match=r"größe\.pt is a web page"):
        read(path)
    path.write_bytes(b"\x01\x02\x03\xff\xfe" * 9)
    with pytest.raises(DamagedFileError, match=r"begins with 01 02 03 ff fe"):
        read(path)
    assert form_of(Window.of(b"\xff\x00\x01\xfe"), ".safetensors") == "safetensors"


def test_a_flipped_bit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"a": torch.full((64,), 1.5)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(b"\x00\x00\xc0\x3f" * 8)] ^= 1
    path.write_bytes(data)
    assert "CRC-32" in read(path).damage
