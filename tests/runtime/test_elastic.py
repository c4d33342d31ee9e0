"""A run goes on with another number of ranks, and with whole copies or shards, as if it had never been cut."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import run

OPTIONS: dict[str, Any] = {"batchnorm": True, "branches": True, "noise": 0.3, "depth": 2, "val": 10}
RUN = ["precision=fp64", "stop.epochs=3", "batch.global_batch=8", "parallel.sync_batchnorm=true", "optim.lr=0.02"]
RUN += ["optim.clip_norm=0.5", "optim.weight_decay=0.1"]

# How each part of the run is done: strategy, number of ranks, the step that it is cut off at.
PARTS = [("ddp", 2, 4), ("fsdp", 3, 9), ("fsdp", 1, 13), ("fsdp", 2, 16), ("ddp", 3, 21)]


def part(folder: Path, strategy: str, until: int, resume: bool) -> None:
    with World.enter(threads=1) as world:
        more = [f"parallel.strategy={strategy}", f"stop.max_steps={until}"]
        run(world, folder, OPTIONS, [*RUN, *more], resume=resume)


def losses(folder: Path) -> list[float]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


def test_shards_and_copies_at_any_n(tmp_path: Path) -> None:
    run_ranks(part, 1, tmp_path / "whole", "ddp", 21, False)
    for number, (strategy, num_ranks, until) in enumerate(PARTS):
        run_ranks(part, num_ranks, tmp_path / "parts", strategy, until, number > 0)
    whole, parts = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert len(whole) == len(parts) == 21
    assert parts == pytest.approx(whole, rel=1e-12)
    weights = [
        load_file(tmp_path / name / "checkpoints/step-00000021/model.safetensors") for name in ("whole", "parts")
    ]
    assert {name: value.shape for name, value in weights[0].items()} == {n: v.shape for n, v in weights[1].items()}
    # Of the whole: a bias before BatchNorm has no true gradient, and Adam makes steps of what rounding leaves.
    apart = sum(float((value - weights[1][name]).double().square().sum()) for name, value in weights[0].items())
    assert apart <= 1e-16 * sum(float(value.double().square().sum()) for value in weights[0].values())


def test_a_sharded_checkpoint_holds_no_pickle_but_the_trainer(tmp_path: Path) -> None:
    run_ranks(part, 2, tmp_path, "fsdp", 3, False)
    folder = tmp_path / "checkpoints/step-00000003"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    shards = [name for name in files if name.startswith("shards/")]
    assert len(shards) == 2
    assert all(name.endswith(".safetensors") for name in shards)
    assert sorted(json.loads((folder / "manifest.json").read_text())["files"]) == [
        name for name in files if name != "manifest.json"
    ]
