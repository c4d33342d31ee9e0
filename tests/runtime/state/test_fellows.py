"""Shards that several ranks write together and any number of ranks reads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from lockstep.runtime.state.checkpoint import Snapshot, listing, verify, write
from lockstep.runtime.state.fellows import Fellows, fitted, load_shards
from lockstep.runtime.world import World
from tests.ranks import run_ranks

WHOLE = {"wide": torch.arange(35.0).reshape(7, 5), "short": torch.arange(2.0), "half": torch.ones(4).bfloat16()}


def shards_of(world: World, fellows: Fellows) -> dict[str, DTensor]:
    mesh = init_device_mesh("cpu", (world.num_ranks,))
    split = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in WHOLE.items()}
    return {name: fellows.host_shard(value) for name, value in split.items()}


def save(folder: Path) -> None:
    with World.enter(threads=1) as world:
        fellows = Fellows(world)
        shards = shards_of(world, fellows)
        fellows.save(folder, shards)
        world.barrier()


def load(folder: Path) -> dict[str, Any]:
    with World.enter(threads=1) as world:
        mesh = init_device_mesh("cpu", (world.num_ranks,))
        split = {n: distribute_tensor(torch.zeros_like(v), mesh, [Shard(0)]) for n, v in WHOLE.items()}
        load_shards(folder, dict(split))
        complete = {name: torch.zeros_like(value) for name, value in WHOLE.items()}
        load_shards(folder, dict(complete))
        like = split["wide"]
        return {
            "split": {name: value.full_tensor() for name, value in split.items()},
            "whole": complete,
            "fitted": torch.equal(fitted(WHOLE["wide"], like).to_local(), like.to_local()),
        }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "here"
    run_ranks(save, 3, folder)
    return folder


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_any_number_of_ranks_reads_what_three_have_written(written: Path, num_ranks: int) -> None:
    for rank in run_ranks(load, num_ranks, written):
        for kind in ("split", "whole"):
            assert all(torch.equal(rank[kind][name], value) for name, value in WHOLE.items())
        assert rank["fitted"]


def test_a_name_that_is_not_there_is_an_error(written: Path) -> None:
    with pytest.raises(KeyError, match="absent"):
        load_shards(written, {"absent": torch.zeros(2)})


def test_an_ordinary_tensor_fits_as_it_is() -> None:
    value = torch.ones(2)
    assert fitted(value, torch.zeros(2)) is value


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def failing(folder: Path, how: str) -> tuple[str, list[str]]:
    with World.enter(threads=1) as world:
        fellows = Fellows(world)
        snapshot = Snapshot(4, {}, {}, {"position": {}}, {}, shards_of(world, fellows))
        if how == "no folder" and world.is_main:
            folder.write_text("in the way")
        if how == "no room" and world.rank == 1:
            HuggingFaceStorageWriter.write_data = full_disk
        world.barrier()
        text = ""
        try:
            write(folder, snapshot, fellows)
        except OSError as error:
            text = str(error)
        world.barrier()
        return text, [path.name for path in folder.iterdir()] if folder.is_dir() else []


@pytest.mark.parametrize("how", ["no folder", "no room"])
def test_what_fails_on_one_rank_is_told_on_all_and_leaves_nothing(tmp_path: Path, how: str) -> None:
    ranks = run_ranks(failing, 2, tmp_path / "checkpoints", how)
    assert all(text for text, _ in ranks)
    assert not any(left for _, left in ranks)


def together(folder: Path) -> None:
    with World.enter(threads=1) as world:
        fellows = Fellows(world)
        tensors = {"w": torch.ones(2)} if fellows.leads else {}
        write(folder, Snapshot(4, tensors, {}, {"position": {}}, {}, shards_of(world, fellows)), fellows)
        world.barrier()


def test_a_checkpoint_lists_the_shards_of_every_rank(tmp_path: Path) -> None:
    run_ranks(together, 2, tmp_path)
    (path,) = listing(tmp_path)
    files = verify(path)["files"]
    assert sum(name.startswith("shards/") for name in files) == 2
    victim = path / next(name for name in files if name.startswith("shards/"))
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(ValueError, match="differs from what was written"):
        verify(path)
