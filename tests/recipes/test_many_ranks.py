"""Recipes on real files, and the one with two branches, train the same at N = 1, 2, 3, and go on where they were."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.recipes.folder import Folder
from lockstep.recipes.two_branches import Branched, TwoBranches
from lockstep.recipes.voc import Voc
from lockstep.runtime.config import load_config
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.recipes.pictures import class_folder, voc_folder

QUICK = ["log.every_steps=1", "log.tensorboard=off", "log.progress=off", "checkpoint.every_epochs=null"]
FP64 = [*QUICK, "precision=fp64", "schedule.warmup_steps=2"]
NET: dict[str, Any] = {"width": 4, "depth": 2, "blocks": 1}
VOC: dict[str, Any] = {"classes": 5, "crop": 32, "eval_size": 64, "scale": (0.5, 1.5), **NET}

# name -> (recipe, its options, overrides). Global batches that 3 ranks, or 2, do not divide.
VARIANTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "voc": ("voc", VOC, ["batch.global_batch=5", "batch.eval=2", "stop.epochs=3", "optim.lr=0.01"]),
    "voc, workers": (
        "voc",
        VOC,
        ["batch.global_batch=5", "batch.eval=2", "stop.epochs=3", "optim.lr=0.01", "data.workers=2"],
    ),
    "voc, unet": (
        "voc",
        {**VOC, "model": "unet"},
        ["batch.global_batch=10", "batch.accumulation=2", "stop.epochs=3", "optim.lr=0.01"],
    ),
    "folder": (
        "folder",
        {"size": 16, "flip": 0.0, **NET},
        ["batch.global_batch=7", "batch.eval=4", "stop.epochs=4", "optim.lr=0.01"],
    ),
    "two branches": ("two_branches", {"dark_share": 0.03}, ["batch.global_batch=32", "stop.epochs=1", "optim.lr=0.01"]),
    "two branches, fsdp": (
        "two_branches",
        {"dark_share": 0.03},
        ["batch.global_batch=32", "stop.epochs=1", "optim.lr=0.01", "parallel.strategy=fsdp"],
    ),
}


class Noted(Branched):
    """Writes down which branches its samples take."""

    taken: set[tuple[bool, bool]]

    def forward(self, image: torch.Tensor, dark: torch.Tensor) -> torch.Tensor:
        self.taken.add((bool(dark.any()), bool((~dark).any())))
        return super().forward(image, dark)


class Noting(TwoBranches):
    def model(self) -> nn.Module:
        model = Noted(self.hidden)
        self.taken = model.taken = set()
        return model


def recipe_of(name: str, options: dict[str, Any], root: Path) -> Recipe:
    if name == "two_branches":
        return Noting(hidden=16, **options)
    return Voc(str(root / "voc"), **options) if name == "voc" else Folder(str(root / "digits"), **options)


def train(world: World, root: Path, name: str, variant: str, more: list[str], resume: bool = False) -> dict[str, Any]:
    recipe_name, options, overrides = VARIANTS[variant]
    required = [] if recipe_name == "two_branches" else ["options.root=anywhere"]
    config = load_config(None, [f"recipe={recipe_name}", *required, *overrides, *more])
    folder = root / name
    recipe = recipe_of(recipe_name, options, root)
    summary = fit(recipe, config, world, folder, resume)
    world.barrier()
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = [record for record in records if "loss" in record]
    digest = json.loads((folder / "manifest.json").read_text())["weights_digest"]
    return {
        "loss": [record["loss"] for record in logged],
        "norm": [record["grad_norm"] for record in logged],
        "val": [{key: v for key, v in record.items() if key.startswith("val/")} for record in records],
        "results": summary.results,
        "digest": digest,
        "taken": sorted(getattr(recipe, "taken", ())),
    }


def all_variants(root: Path, variants: list[str]) -> dict[str, dict[str, Any]]:
    with World.enter(threads=1) as world:
        n = world.num_ranks
        return {name: train(world, root, f"{name} on {n}", name, FP64) for name in variants}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    voc_folder(root / "voc", train=13, val=7)
    class_folder(root / "digits", train=9, val=5)
    return root


@pytest.fixture(scope="module")
def ranks(root: Path) -> dict[int, list[dict[str, dict[str, Any]]]]:
    """What was logged, by N, rank and variant; each N is launched once."""
    return {n: run_ranks(all_variants, n, root, list(VARIANTS), timeout_s=200) for n in (1, 2, 3)}


@pytest.fixture(scope="module")
def runs(ranks: dict[int, list[dict[str, dict[str, Any]]]]) -> dict[int, dict[str, dict[str, Any]]]:
    """The same, of rank 0."""
    return {n: each[0] for n, each in ranks.items()}


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_training_at_every_n(runs: dict[int, dict[str, dict[str, Any]]], variant: str, num_ranks: int) -> None:
    one, many = runs[1][variant], runs[num_ranks][variant]
    assert many["loss"] == pytest.approx(one["loss"], rel=1e-12)
    assert many["norm"] == pytest.approx(one["norm"], rel=1e-10)
    measures = [[{k: v for k, v in values.items() if k != "val/loss"} for values in run["val"]] for run in (one, many)]
    assert measures[0] == measures[1] and any(measures[0])


def test_shards_change_nothing(runs: dict[int, dict[str, dict[str, Any]]]) -> None:
    for n in (1, 2, 3):
        ddp, fsdp = runs[n]["two branches"], runs[n]["two branches, fsdp"]
        assert fsdp["loss"] == pytest.approx(ddp["loss"], rel=1e-12)


def test_workers_change_nothing(runs: dict[int, dict[str, dict[str, Any]]]) -> None:
    for n in (1, 2, 3):
        assert runs[n]["voc, workers"]["digest"] == runs[n]["voc"]["digest"]


def test_the_curves_are_of_a_training(runs: dict[int, dict[str, dict[str, Any]]]) -> None:
    """Equal curves prove nothing if nothing is learnt."""
    for variant, run in runs[1].items():
        third = len(run["loss"]) // 3
        assert sum(run["loss"][-third:]) < 0.95 * sum(run["loss"][:third]), (variant, run["loss"])


def test_some_shares_have_no_dark_digit(ranks: dict[int, list[dict[str, dict[str, Any]]]]) -> None:
    for n in (2, 3):
        assert all(rank["two branches"]["taken"] == [(False, True), (True, True)] for rank in ranks[n])


def whole_and_cut(root: Path) -> dict[str, list[str]]:
    with World.enter(threads=1) as world:
        digests = {}
        for variant in ("voc, workers", "folder"):
            name = f"{variant}, resumed"
            whole = train(world, root, f"{name}, whole", variant, QUICK)
            train(world, root, f"{name}, cut", variant, [*QUICK, "stop.max_steps=4"])
            cut = train(world, root, f"{name}, cut", variant, [*QUICK], resume=True)
            digests[variant] = [whole["digest"], cut["digest"]]
        return digests


def test_resume_is_bit_exact(root: Path) -> None:
    for whole, cut in run_ranks(whole_and_cut, 2, root, timeout_s=120)[0].values():
        assert whole == cut
