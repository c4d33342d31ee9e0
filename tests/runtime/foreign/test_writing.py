"""Weights are written whole, tied ones as what they are, and load anywhere."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lockstep.core.errors import RunError
from lockstep.runtime.foreign.files import read
from lockstep.runtime.foreign.writing import load_all, owners, write_weights
from tests.disks import small_disk
from tests.runtime.state.test_tensors import Tied


def tied_file(path: Path) -> Path:
    state = Tied().state_dict()
    torch.save({name: value for name, value in state.items() if isinstance(value, torch.Tensor)}, path)
    return path


def test_ties_survive_in_both_forms(tmp_path: Path) -> None:
    entries = read(tied_file(tmp_path / "a.pt")).groups[""]
    assert owners(entries) == {"head.weight": "embed.weight"}
    write_weights(tmp_path / "b.safetensors", entries, "safetensors")
    loaded = load_file(tmp_path / "b.safetensors")
    assert torch.equal(loaded["head.weight"], loaded["embed.weight"]) and loaded.keys() == entries.keys()
    again = read(tmp_path / "b.safetensors")
    assert owners(again.groups[""]) == {"head.weight": "embed.weight"}
    write_weights(tmp_path / "c.pt", again.groups[""], "pt")
    back = torch.load(tmp_path / "c.pt", weights_only=True)
    assert back["head.weight"].data_ptr() == back["embed.weight"].data_ptr()


def test_only_floating_tensors_change_their_type(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2), "n": torch.tensor(3), "t": torch.ones(3, 2).t()}, tmp_path / "a.pt")
    found = load_all(read(tmp_path / "a.pt").groups[""], "bf16")
    assert found["a"].dtype == torch.bfloat16 and found["n"].dtype == torch.int64
    assert found["t"].is_contiguous()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2_000_000)}, tmp_path / "a.pt")
    entries = read(tmp_path / "a.pt").groups[""]
    disk = tmp_path / "disk"
    with small_disk(disk, "512k"):
        for name in ("w.safetensors", "w.pt"):
            (disk / name).write_text("old")
            with pytest.raises(RunError, match="could not be written"):
                write_weights(disk / name, entries, "pt" if name.endswith("pt") else "safetensors")
            assert (disk / name).read_text() == "old"
        assert sorted(path.name for path in disk.iterdir()) == ["w.pt", "w.safetensors"]
