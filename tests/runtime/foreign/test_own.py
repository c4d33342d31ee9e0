"""A run and its checkpoints are opened as a resume would take them."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lockstep.runtime.foreign.own import Own, Run, checkpoints_of, half_written
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError
from lockstep.runtime.state.checkpoint import MODEL, point_to_best
from tests.runtime.state.snapshots import flip, written


@pytest.fixture
def run(tmp_path: Path) -> Path:
    written(tmp_path / "run" / "checkpoints", 1, 2, 3)
    return tmp_path / "run"


def test_the_newest_whole_one_is_opened_and_the_others_are_named(run: Path) -> None:
    folder = checkpoints_of(run)
    point_to_best(folder, 1)
    flip(folder / "step-00000003" / MODEL, -1, 0)
    for path in (run, folder):
        assert Run.matches(path) and not Own.matches(path)
        found = Run.read(path)
        assert found.path.name == "step-00000002" and found.facts["step"] == 2
        assert found.facts["also there"] == "step-00000003, step-00000001, best -> step-00000001"
        assert "step-00000003" in found.notes[0] and not found.damage
        assert float(found.groups["model"]["net.bias"].load()[0]) == 2.0
    assert "differs from what was written" in Own.read(folder / "step-00000003").damage
    assert Own.matches(folder / "best") and "optimizer" in Own.read(folder / "best").groups


def test_averaged_weights_are_a_part_of_their_own(run: Path) -> None:
    path = checkpoints_of(run) / "step-00000003"
    save_file({"net.bias": torch.full((8,), 9.0)}, path / "ema.safetensors")
    found = Own.read(path)
    assert found.weights == "model" and float(found.groups["ema"]["net.bias"].load()[0]) == 9.0


def test_half_written_and_nothing_whole(run: Path) -> None:
    folder = checkpoints_of(run)
    beside = folder / ".writing-step-00000004"
    shutil.copytree(folder / "step-00000003", beside)
    with pytest.raises(NoCheckpointError, match="half-written"):
        Own.read(beside)
    assert "half-written" in half_written(beside)
    for path in folder.glob("step-*"):
        shutil.rmtree(path)
    assert Run.matches(run)
    with pytest.raises(DamagedFileError, match="the only one is half-written"):
        Run.read(run)


def test_a_single_checkpoint_has_nothing_beside_it(tmp_path: Path) -> None:
    written(tmp_path / "checkpoints", 1)
    assert "also there" not in Run.read(tmp_path).facts
