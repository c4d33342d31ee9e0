"""The contract of the runtime: the same config gives the same training at N = 1, 2, 3, 4."""

import os
from pathlib import Path
from typing import Any

import pytest

from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import run

FP64 = ["precision=fp64", "stop.epochs=3", "optim.lr=0.03", "checkpoint.every_epochs=null"]

FSDP = "parallel.strategy=fsdp"

# name -> (options of the recipe, overrides of the config)
VARIANTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "plain": ({}, ["batch.global_batch=16"]),
    "sgd": ({}, ["batch.global_batch=16", "optim.name=sgd", "optim.lr=0.1"]),
    "synchronised batchnorm": ({"batchnorm": True}, ["batch.global_batch=16", "parallel.sync_batchnorm=true"]),
    "clipping": ({}, ["batch.global_batch=16", "optim.clip_norm=0.05"]),
    "indivisible batch": ({}, ["batch.global_batch=15"]),
    "two terms": ({"terms": 2}, ["batch.global_batch=16"]),
    "late counts": ({"early": False, "terms": 2}, ["batch.global_batch=16"]),
    "accumulation 2": ({}, ["batch.global_batch=16", "batch.accumulation=2"]),
    "accumulation 4": ({}, ["batch.global_batch=16", "batch.accumulation=4"]),
    "accumulation 2, two terms": ({"terms": 2}, ["batch.global_batch=16", "batch.accumulation=2"]),
    "accumulation 4, late count": ({"early": False}, ["batch.global_batch=16", "batch.accumulation=4"]),
    "accumulation 2, batchnorm": (
        {"batchnorm": True},
        ["batch.global_batch=16", "batch.accumulation=2", "parallel.sync_batchnorm=true"],
    ),
    "branches": ({"branches": True}, ["batch.global_batch=6"]),
    "branches, accumulation 2": ({"branches": True}, ["batch.global_batch=8", "batch.accumulation=2"]),
    "augmentation": ({"noise": 0.5}, ["batch.global_batch=16"]),
    "augmentation in workers": ({"noise": 0.5}, ["batch.global_batch=16", "data.workers=2"]),
    "stream": ({"stream": True}, ["batch.global_batch=16", "schedule.name=constant"]),
    "stream with a state": ({"reads": os.devnull}, ["batch.global_batch=16", "schedule.name=constant"]),
    "stream in workers": (
        {"stream": True},
        ["batch.global_batch=16", "batch.accumulation=2", "data.workers=2", "schedule.name=constant"],
    ),
    "branches, batchnorm, small buckets": (
        {"branches": True, "batchnorm": True},
        ["batch.global_batch=6", "parallel.sync_batchnorm=true", "parallel.bucket_mb=0.0001"],
    ),
    "average of the weights": ({"val": 10}, ["batch.global_batch=16", "ema.decay=0.9", "ema.start_step=2"]),
    "small buckets": ({}, ["batch.global_batch=16", "parallel.bucket_mb=0.0001"]),
    "targets": ({}, ["batch.global_targets=500"]),
    "targets, micro-steps, like sizes": (
        {"terms": 2, "noise": 0.5},
        ["batch.global_targets=500", "batch.micro_targets=130", "data.bucket=4", "data.workers=1"],
    ),
    "like sizes": ({}, ["batch.global_batch=15", "data.bucket=4"]),
    "static graph": ({}, ["batch.global_batch=16", "batch.accumulation=2", "parallel.static_graph=true"]),
    "find unused by graph": ({"branches": True}, ["batch.global_batch=6", "parallel.find_unused=on"]),
    "shards": ({"depth": 2}, ["batch.global_batch=16", FSDP]),
    "shards, indivisible batch": ({"depth": 2}, ["batch.global_batch=15", FSDP]),
    "shards, late counts": ({"early": False, "terms": 2, "depth": 2}, ["batch.global_batch=16", FSDP]),
    "shards, accumulation 4": ({"early": False, "depth": 2}, ["batch.global_batch=16", "batch.accumulation=4", FSDP]),
    "shards, sgd": ({"depth": 2}, ["batch.global_batch=16", "optim.name=sgd", "optim.lr=0.1", FSDP]),
    "shards, clipping": ({"depth": 2}, ["batch.global_batch=16", "optim.clip_norm=0.05", FSDP]),
    "shards, branches": ({"branches": True, "depth": 2}, ["batch.global_batch=6", FSDP]),
    "shards, stream": ({"stream": True}, ["batch.global_batch=16", "schedule.name=constant", FSDP]),
    "shards, batchnorm, recomputed": (
        {"batchnorm": True, "depth": 2},
        ["batch.global_batch=16", "parallel.sync_batchnorm=true", "memory.activation_checkpointing=true", FSDP],
    ),
    "deep": ({"depth": 2}, ["batch.global_batch=16"]),
    "deep, recomputed": ({"depth": 2}, ["batch.global_batch=16", "memory.activation_checkpointing=true"]),
}


def all_variants(folder: Path) -> dict[str, dict[str, Any]]:
    with World.enter(threads=1) as world:
        return {name: run(world, folder / name, options, FP64 + more) for name, (options, more) in VARIANTS.items()}


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict[str, Any]]]:
    """Loss curves by N and variant; each N is launched once."""
    root = tmp_path_factory.mktemp("exactness")
    return {n: run_ranks(all_variants, n, root / str(n), timeout_s=200)[0] for n in (1, 2, 3, 4)}


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("name", VARIANTS)
def test_same_loss_curve_at_every_n(curves: dict[int, dict[str, dict[str, Any]]], name: str, num_ranks: int) -> None:
    one, many = curves[1][name], curves[num_ranks][name]
    assert len(one["loss"]) >= 9
    assert many["loss"] == pytest.approx(one["loss"], rel=1e-12)
    assert many["norm"] == pytest.approx(one["norm"], rel=1e-11)


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_same_average_at_every_n(curves: dict[int, dict[str, dict[str, Any]]], num_ranks: int) -> None:
    one, many = curves[1]["average of the weights"], curves[num_ranks]["average of the weights"]
    assert len(one["ema"]) > 100
    assert many["ema"] == pytest.approx(one["ema"], rel=1e-12, abs=1e-15)
    assert many["results"] == pytest.approx(one["results"], rel=1e-12)
    assert one["loss"] == curves[1]["plain"]["loss"]  # training itself goes on with the weights


@pytest.mark.parametrize("name", ["accumulation 2", "accumulation 4", "accumulation 4, late count", "small buckets"])
def test_accumulation_changes_nothing(curves: dict[int, dict[str, dict[str, Any]]], name: str) -> None:
    assert curves[2][name]["loss"] == pytest.approx(curves[1]["plain"]["loss"], rel=1e-12)


@pytest.mark.parametrize("name", ["shards", "shards, accumulation 4", "deep, recomputed"])
def test_shards_and_recomputing_change_nothing(curves: dict[int, dict[str, dict[str, Any]]], name: str) -> None:
    assert curves[2][name]["loss"] == pytest.approx(curves[1]["deep"]["loss"], rel=1e-12)


def test_the_curves_are_of_a_training(curves: dict[int, dict[str, dict[str, Any]]]) -> None:
    """Equal curves prove nothing if nothing is learnt, or if the variants do not differ."""
    assert curves[1]["plain"]["loss"][-1] < 0.9 * curves[1]["plain"]["loss"][0]
    assert curves[1]["stream"]["loss"][-1] < 0.9 * curves[1]["stream"]["loss"][0]
    ends = [curve["loss"][-1] for name, curve in curves[1].items() if "accumulation" not in name]
    assert len({round(end, 6) for end in ends}) >= 9
