"""The shards that ranks of ours write with FSDP are read whole."""

from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from lockstep.runtime.foreign.rank_shards import matches, read
from lockstep.runtime.foreign.window import DamagedFileError
from lockstep.runtime.state.fellows import Fellows
from lockstep.runtime.world import World
from tests.ranks import run_ranks

WIDE = torch.arange(35.0).reshape(7, 5)


def _save(folder: str) -> None:
    with World.enter("cpu") as world:
        mesh = init_device_mesh("cpu", (world.num_ranks,))
        Fellows(world).save(Path(folder), {"wide": distribute_tensor(WIDE, mesh, [Shard(0)])})


def test_they_become_whole_and_a_missing_one_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    run_ranks(_save, 2, str(folder))
    assert matches(folder)
    found = read(folder)
    assert found.facts == {"files": 2} and torch.equal(found.groups[""]["wide"].load(), WIDE)
    sorted(folder.iterdir())[0].unlink()
    with pytest.raises(DamagedFileError, match="shards of wide hold 15 of its 35 elements: one is missing"):
        read(folder)
    sorted(folder.iterdir())[0].write_bytes(b"12345")
    with pytest.raises(DamagedFileError, match="header"):
        read(folder)
