"""What made a step not finite is named: the rank, the sample in the data set, loss or gradient."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.core.errors import RunError
from lockstep.runtime.config import load_config
from lockstep.runtime.data.broken import Broken
from lockstep.runtime.data.sampler import Key, TrainSampler
from lockstep.runtime.diagnose import Culprit, find_culprits, report
from lockstep.runtime.loss import Term
from lockstep.runtime.precision import Precision
from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.regression import FINE, INF, LARGE, NAN, STEEP, Host, Regression, samples

FP32 = Precision.of("fp32", torch.device("cpu"))
KINDS = [FINE, NAN, INF, STEEP, LARGE]


def read(keys: list[Key]) -> Any:
    """Sample i is of kind i; sample 5 cannot be read."""
    return Broken("gone", False) if keys[0][1] == 5 else samples([KINDS[index] for _, index in keys])


def culprits(recipe: Regression, model: nn.Module | None = None) -> list[Culprit]:
    keys = [(3, index) for index in range(6)]
    return find_culprits(model or recipe.model(), recipe, read, keys, FP32)


def test_each_sample_is_judged_by_its_own_loss_and_gradient() -> None:
    found = {one.index: one.what for one in culprits(Regression())}
    assert found == {1: "loss is nan", 2: "loss is inf", 3: found[3], 4: found[4]}
    assert found[3] in ("gradient is inf", "gradient is nan")
    assert found[4] == "gradient is inf"  # finite numbers whose norm is not


def test_looking_changes_nothing() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    culprits(Regression(), model)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.eval()
    culprits(Regression(), model)
    assert not model.training


class Bare(Regression):
    """Returns plain tuples, which the training accepts too."""

    def loss(self, model: nn.Module, batch: Host) -> Any:
        return {name: (term.sum, term.count) for name, term in super().loss(model, batch).items()}


class Constant(Regression):
    """A sample without a valid element gives a loss that comes from no model."""

    def loss(self, model: nn.Module, batch: Host) -> Any:
        fine = bool((batch["kind"] == FINE).all())
        return {"squares": Term(torch.zeros(()), 0)} if fine else super().loss(model, batch)


class Half(Regression):
    """A parameter that this loss has no use for, and two terms of different types."""

    def model(self) -> nn.Module:
        model = nn.Linear(3, 1)
        model.other = nn.Parameter(torch.ones(2))
        return model

    def loss(self, model: nn.Module, batch: Host) -> Any:
        (term,) = super().loss(model, batch).values()
        return {"a": term, "b": Term(term.sum.double(), 1)}


@pytest.mark.parametrize("recipe", [Bare(), Constant(), Half()])
def test_recipes_that_train_can_be_diagnosed(recipe: Regression) -> None:
    assert [one.index for one in culprits(recipe)] == [1, 2, 3, 4]


def reported() -> list[str]:
    with World.enter(threads=1) as world:
        keys = [(0, 10 * world.rank + i) for i in range(20)]
        one = [Culprit(13, "loss is nan")] if world.rank == 1 else []
        many = [Culprit(index, "loss is inf") for index in range(11)] if world.rank == 0 else one
        every = [Culprit(index, f"loss is {'nan' if index % 2 else 'inf'}") for _, index in keys]
        told = [report(world, 7, keys, found) for found in (one, many, [], every if world.rank == 0 else [])]
        return [*told, report(world, 7, keys, [], looked=False)]


def test_all_ranks_report_the_same_findings() -> None:
    ranks = run_ranks(reported, 2)
    assert ranks[0] == ranks[1]
    one, many, none, every, unseen = (text.splitlines() for text in ranks[0])
    assert unseen[1].startswith("  rank 0: the step read 0, 1")
    assert every[1:] == ["  rank 0: each of its 20 samples by itself: loss is inf, loss is nan"]
    assert one == ["step 7: loss or gradient is not finite", "  rank 1: sample 13, its loss is nan"]
    assert len(many) == 1 + 8 + 1 + 1
    assert many[9:] == ["  rank 0: and 3 more samples", "  rank 1: sample 13, its loss is nan"]
    assert none[1].startswith("  rank 0: no sample by itself; the step read 0, 1, 2")
    assert none[2].endswith(", 25 ...")


BASE = ["recipe=tests/runtime/regression.py:Regression", "log.tensorboard=off", "batch.global_batch=6"]
BASE += ["stop.epochs=2", "log.every_steps=1", "checkpoint.every_epochs=null"]


def run(world: World, folder: Path, bad: dict[int, int], *overrides: str) -> tuple[str, list[float]]:
    """Train; the error if there was one, and the weights at the end."""
    recipe = Regression(bad=bad)
    models: list[nn.Module] = []
    make = recipe.model
    recipe.model = lambda: models.append(make()) or models[-1]  # type: ignore[method-assign, func-returns-value]
    error = ""
    try:
        fit(recipe, load_config(None, [*BASE, *overrides]), world, folder)
    except RunError as raised:
        error = str(raised)
    return error, [value for p in models[0].parameters() for value in p.detach().flatten().tolist()]


def trained(folder: Path) -> dict[str, Any]:
    with World.enter(threads=1) as world:
        found: dict[str, Any] = {}
        for precision in ("fp32", "bf16", "fp16"):
            stop = run(world, folder / f"stop {precision}", {17: NAN}, f"precision={precision}", "stop.nonfinite=stop")
            skip = run(world, folder / f"skip {precision}", {17: NAN, 3: INF}, f"precision={precision}")
            found[precision] = stop, skip
        limit = ["batch.global_batch=24", "stop.epochs=3", "stop.nonfinite_limit=3"]
        handler = Kept()
        logging.getLogger("lockstep").addHandler(handler)
        found["limit"] = run(world, folder / "limit", {17: NAN}, *limit)
        logging.getLogger("lockstep").removeHandler(handler)
        found["warned"] = handler.said
        return found


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def owner_of(index: int) -> tuple[int, int]:
    """Step and rank that read a sample in epoch 0."""
    sampler = TrainSampler(24, 6, 1, 0, 0, 2)
    (place,) = [(s, r) for s in range(4) for r in range(2) if (0, index) in sampler.keys(s, 0, r)]
    return place


def test_a_run_names_rank_step_and_sample_and_skips_on_all_ranks(tmp_path: Path) -> None:
    ranks = run_ranks(trained, 2, tmp_path)
    step, rank = owner_of(17)
    for precision in ("fp32", "bf16", "fp16"):
        (error, _), (none, weights) = ranks[0][precision]
        assert f"step {step}: loss or gradient is not finite\n  rank {rank}: sample 17, its loss is nan" in error
        assert "lower optim.lr" in error
        assert none == ""
        assert ranks[1][precision] == ranks[0][precision]
        assert all(abs(value) < 1e3 for value in weights)
        log = (tmp_path / f"skip {precision}" / "metrics.jsonl").read_text().splitlines()
        skipped = [json.loads(line)["skipped"] for line in log]
        assert skipped[-1] == 2 * len({owner_of(17)[0], owner_of(3)[0]})
    error, _ = ranks[0]["limit"]
    assert "sample 17, its loss is nan" in error
    assert "fewer than 3 skipped steps in a row" in error
    place = "in the loss makes nan"
    first, second = ranks[0]["warned"]
    assert place not in first and "skipped on all ranks (1 in a row)" in first
    assert place in second and "loss of steps 0 to 1: nan, nan" in second and "(2 in a row)" in second
    assert place in error
    assert ranks[1]["warned"] == []  # one rank speaks for all
