"""Weights are taken of any checkpoint, and of a trap never."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep.core.errors import UserError
from lockstep.runtime.foreign.readers import open_checkpoint
from lockstep.runtime.foreign.take import weights_from, weights_in
from lockstep.runtime.foreign.window import DamagedFileError
from lockstep.runtime.state.checkpoint import MODEL
from lockstep.runtime.state.weights import load_weights, read_weights
from tests.runtime.foreign.samples import accelerate_state, lightning, net, sharded, training, traps
from tests.runtime.state.snapshots import flip, written


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "kind", ["training.pt", "lightning.ckpt", "accelerate", "accelerate bin", "sharded", "module.pt"]
)
def test_a_model_starts_from_any_kind(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "training.pt":
        source = training(path, 1)
    elif kind == "lightning.ckpt":
        source = lightning(path, 1)
    elif kind.startswith("accelerate"):
        source = accelerate_state(path, 1, safe=kind == "accelerate")
    elif kind == "sharded":
        source = sharded(path, 1)
    else:
        source = net(1)
        torch.save({"model": source, "epoch": 1}, path)
    model = net(2)
    load_weights(model, read_weights(path), str(path))
    assert same(model, source)


def test_a_part_by_its_name(tmp_path: Path) -> None:
    torch.save(
        {"a": {"x": torch.ones(1)}, "b": {"x": torch.zeros(1)}, "s": {"b": {"y": torch.ones(1)}}}, tmp_path / "x.pt"
    )
    contents = open_checkpoint(tmp_path / "x.pt")
    assert float(weights_in(contents, "a")["x"].load()) == 1.0
    with pytest.raises(UserError, match=r"holds a, b, s\.b; which are the weights is not clear"):
        weights_in(contents)
    with pytest.raises(UserError, match="'c' is not in"):
        weights_in(contents, "c")
    assert "y" in weights_in(contents, "s.b")


@pytest.mark.parametrize("name", [name for name in traps(Path("x")) if name != "BUILD"])
def test_a_trap_is_refused_by_name(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "exploded"
    (tmp_path / "a.pt").write_bytes(traps(mark)[name])
    with pytest.raises(UserError, match=r"asks to run .* nothing was run"):
        weights_from(tmp_path / "a.pt")
    assert not mark.exists()


def test_other_peoples_objects_are_no_reason_to_refuse(tmp_path: Path) -> None:
    training(tmp_path / "a.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "a.pt", weights_only=True)
    assert weights_from(tmp_path / "a.pt").keys() == {f"module.{name}" for name in net().state_dict()}


def test_damaged_bytes_are_not_taken(tmp_path: Path) -> None:
    path = written(tmp_path, 1)[0]
    flip(path / MODEL, -1, 0)
    with pytest.raises(UserError, match=r"is damaged: .*differs from what was written"):
        weights_from(path)
    with pytest.raises(DamagedFileError):
        weights_in(open_checkpoint(path))
