"""Folders of torch.distributed.checkpoint, written by torch on two ranks, are read without its classes."""

import os
import pickle
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dist_checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from lockstep.runtime.foreign.dcp import matches, read
from lockstep.runtime.foreign.window import DamagedFileError
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.foreign.samples import Calls, trained

WIDE = torch.arange(35.0).reshape(7, 5)


def _save(folder: str) -> None:
    with World.enter("cpu"):
        mesh = init_device_mesh("cpu", (2,))
        state = {
            "model": {
                "wide": distribute_tensor(WIDE, mesh, [Shard(0)]),
                "deep": distribute_tensor(WIDE, mesh, [Shard(1)]),
                "whole": torch.arange(3),
            },
            "step": 5,
        }
        dist_checkpoint.save(state, checkpoint_id=folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dcp") / "c"
    run_ranks(_save, 2, str(folder))
    return folder


def test_shards_of_two_ranks_become_whole(saved: Path) -> None:
    assert matches(saved)
    found = read(saved)
    assert found.weights == "model" and found.facts["files"] == 2 and not found.origins
    loaded = {name: entry.load() for name, entry in found.groups["model"].items()}
    assert torch.equal(loaded["wide"], WIDE) and torch.equal(loaded["deep"], WIDE)
    assert torch.equal(loaded["whole"], torch.arange(3))


def test_one_process_with_an_optimizer(tmp_path: Path) -> None:
    model, optimizer = trained()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = {"model": model.state_dict(), "optim": optimizer.state_dict()}
        dist_checkpoint.save(content, checkpoint_id=tmp_path / "c", no_dist=True)
    found = read(tmp_path / "c")
    assert found.weights == "model" and "state.0.exp_avg" in found.groups["optim"]
    same = {name: entry.load() for name, entry in found.groups["model"].items()}
    assert all(torch.equal(same[name], value) for name, value in model.state_dict().items())


def test_what_is_missing_is_named(saved: Path, tmp_path: Path) -> None:
    copy = tmp_path / "c"
    copy.mkdir()
    for file in saved.iterdir():
        os.link(file, copy / file.name)
    (copy / "__1_0.distcp").unlink()
    with pytest.raises(DamagedFileError, match=r"__1_0\.distcp is missing"):
        read(copy)
    (copy / "__1_0.distcp").write_bytes((saved / "__1_0.distcp").read_bytes()[:500])
    with pytest.raises(DamagedFileError, match="cut off"):
        read(copy)
    (copy / ".metadata").unlink()
    assert matches(copy)
    with pytest.raises(DamagedFileError, match="the save did not end"):
        read(copy)
    mark = tmp_path / "exploded"
    (copy / ".metadata").write_bytes(pickle.dumps(Calls(Path.touch, mark)))
    with pytest.raises(DamagedFileError, match="not what DCP writes"):
        read(copy)
    assert not mark.exists()
