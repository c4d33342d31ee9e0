"""When the loop evaluates, saves and stops; every rank takes the same decisions."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from torch.utils.data import IterableDataset

from lockstep.core.errors import LockstepError, UserError
from lockstep.runtime.config import load_config
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.bad_recipes import NotANumber, Small
from tests.ranks import run_ranks
from tests.runtime.tasks import Images, Segment

QUICK = ["recipe=points", "batch.global_batch=10", "log.tensorboard=off", "log.every_steps=1", "precision=fp32"]
QUICK += ["best.metric=null", "optim.lr=1e-9"]  # nothing is learnt, so that every evaluation is the same


class Scene:
    """Several runs in one world, and what is to be seen of each."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.seen: dict[str, dict[str, Any]] = {}
        self.said: list[str] = []

    def run(self, name: str, recipe: Recipe, *overrides: str, resume: bool = False) -> None:
        """Train in a folder of that name; the same name again with `resume` goes on."""
        folder, steps = self.folder / name, list[int]()
        seen: dict[str, Any] = {"steps": steps, "error": None, "misuse": None}
        with caught_words() as said:
            try:
                config = load_config(None, [*QUICK, *overrides])
                summary = fit(recipe, config, self.world, folder, resume, on_step=steps.append)
                seen |= {"step": summary.step, "epoch": summary.epoch, "results": summary.results}
            except LockstepError as error:
                seen |= {"error": str(error), "misuse": isinstance(error, UserError)}
        seen["said"] = said
        self.world.barrier()
        self.seen[name + (" resumed" if resume else "")] = seen | self._left(folder)

    def _left(self, folder: Path) -> dict[str, Any]:
        lines = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
        records = [json.loads(line) for line in lines]
        saved = sorted(path.name for path in (folder / "checkpoints").iterdir())
        best = folder / "checkpoints" / "best"
        return {
            "logged": [record["step"] for record in records if "loss" in record],
            "evaluated": [record["step"] for record in records if "val/loss" in record],
            "skipped": [record["skipped"] for record in records if "skipped" in record],
            "saved": [int(name.removeprefix("step-")) for name in saved if name != "best"],
            "best": best.readlink().name if best.is_symlink() else None,
        }


class caught_words(logging.Handler):  # noqa: N801
    def __enter__(self) -> list[str]:
        self.said: list[str] = []
        self.before = logging.getLogger("lockstep").level
        logging.getLogger("lockstep").addHandler(self)
        logging.getLogger("lockstep").setLevel(logging.INFO)
        return self.said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())

    def __exit__(self, *_: object) -> None:
        logging.getLogger("lockstep").removeHandler(self)
        logging.getLogger("lockstep").setLevel(self.before)


class Uneven(IterableDataset[dict[str, Tensor]]):
    """A stream that lasts longer on rank 1."""

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        images = Images(40 + 20 * int(os.environ["RANK"]))
        return (images[i] for i in range(len(images)))


class UnevenTask(Segment):
    def train_data(self) -> Any:
        return Uneven()


def scenes(folder: Path) -> dict[str, dict[str, Any]]:
    with World.enter(threads=1) as world:
        scene = Scene(world, folder)
        scene.run("epochs", Small(), "stop.epochs=3", "checkpoint.keep_last=9")
        scene.run(
            "every second epoch", Small(), "stop.epochs=4", "evaluate.every_epochs=2", "checkpoint.every_epochs=3"
        )
        by_steps = ["evaluate.every_steps=3", "checkpoint.every_steps=4", "checkpoint.keep_last=9"]
        scene.run("by steps", Small(), "stop.epochs=2", *by_steps)
        scene.run("at the end", Small(), "stop.epochs=2", "evaluate.every_epochs=null", "checkpoint.every_epochs=null")
        scene.run("limit", Small(), "stop.epochs=9", "stop.max_steps=8", "log.every_steps=3")
        waiting = ["stop.epochs=9", "best.metric=val/accuracy", "stop.patience=2", "checkpoint.keep_last=1"]
        scene.run("patience", Small(), *waiting)
        scene.run("patience", Small(), *waiting, resume=True)
        scene.run("more patience", Small(), *waiting)
        scene.run("more patience", Small(), *waiting, "stop.patience=4", resume=True)
        scene.run("patience by steps", Small(), *waiting, "evaluate.every_steps=3")
        scene.run("not kept", Small(), *waiting, "checkpoint.keep_best=false")
        scene.run("one bad sample", NotANumber(), "stop.epochs=2")
        scene.run(
            "limit of bad steps", NotANumber(), "batch.global_batch=60", "stop.epochs=9", "stop.nonfinite_limit=2"
        )
        scene.run("stop at once", NotANumber(), "stop.nonfinite=stop")
        scene.run("no such term", Small(), "best.metric=val/loss/aux")
        scene.run("short stream", Segment(length=23, stream=True), "stop.epochs=2", "schedule.name=constant")
        scene.run("uneven stream", UnevenTask(), "stop.epochs=1", "schedule.name=constant")
    return scene.seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What rank 0 has seen; the other one has seen the same."""
    main, other = run_ranks(scenes, 2, tmp_path_factory.mktemp("scenes"), timeout_s=200)
    for name, scene in main.items():
        for key in ("steps", "misuse", "step", "epoch", "results"):
            assert scene.get(key) == other[name].get(key), (name, key)
    return dict(main)


def test_every_epoch_is_evaluated_and_saved(seen: dict[str, Any]) -> None:
    scene = seen["epochs"]
    assert scene["steps"] == scene["logged"] == list(range(1, 19))
    assert scene["evaluated"] == scene["saved"] == [6, 12, 18]
    assert (scene["step"], scene["epoch"], scene["best"]) == (18, 3, None)
    assert set(scene["results"]) == {"val/loss", "val/accuracy"}


def test_intervals_in_epochs(seen: dict[str, Any]) -> None:
    scene = seen["every second epoch"]
    assert scene["evaluated"] == [12, 24]
    assert scene["saved"] == [18, 24]


def test_intervals_in_steps_add_to_those_in_epochs_and_no_weights_are_evaluated_twice(seen: dict[str, Any]) -> None:
    scene = seen["by steps"]
    assert scene["evaluated"] == [3, 6, 9, 12]
    assert scene["saved"] == [4, 6, 8, 12]


def test_without_intervals_the_end_is_saved(seen: dict[str, Any]) -> None:
    scene = seen["at the end"]
    assert (scene["evaluated"], scene["saved"], scene["results"]) == ([], [12], {})


def test_the_limit_of_steps_is_exact(seen: dict[str, Any]) -> None:
    scene = seen["limit"]
    assert scene["steps"] == list(range(1, 9))
    assert scene["logged"] == [3, 6, 8]
    assert scene["saved"] == [6, 8]
    assert (scene["step"], scene["epoch"]) == (8, 1)


def test_patience_ends_the_run_and_a_resume_does_not_undo_it(seen: dict[str, Any]) -> None:
    scene = seen["patience"]
    assert scene["evaluated"] == [6, 12, 18]
    assert scene["step"] == 18
    assert any("no better val/accuracy for 2 evaluations: stopping" in words for words in scene["said"])
    assert seen["patience resumed"]["steps"] == []
    assert seen["patience resumed"]["step"] == 18


def test_more_patience_lets_it_go_on(seen: dict[str, Any]) -> None:
    assert seen["more patience resumed"]["steps"] == list(range(19, 31))
    assert seen["more patience resumed"]["evaluated"] == [6, 12, 18, 24, 30]


def test_patience_counts_evaluations_of_other_weights(seen: dict[str, Any]) -> None:
    scene = seen["patience by steps"]
    assert scene["evaluated"] == [3, 6, 9]
    assert (scene["best"], scene["saved"]) == ("step-00000003", [3, 9])


def test_the_best_is_kept_besides_the_last(seen: dict[str, Any]) -> None:
    assert (seen["patience"]["best"], seen["patience"]["saved"]) == ("step-00000006", [6, 18])
    assert (seen["not kept"]["best"], seen["not kept"]["saved"]) == (None, [18])
    assert sum("best so far" in words for words in seen["patience"]["said"]) == 1


def test_steps_that_are_not_finite_are_left_out_and_counted(seen: dict[str, Any]) -> None:
    scene = seen["one bad sample"]
    assert scene["error"] is None and scene["step"] == 12
    assert scene["skipped"][-1] == 2
    told = [words for words in scene["said"] if "not finite" in words]
    assert len(told) == 2
    assert all("sample 13, its loss is nan" in words and "skipped on all ranks (1 in a row)" in words for words in told)


def test_too_many_of_them_end_the_run(seen: dict[str, Any]) -> None:
    for name, step in (("limit of bad steps", 1), ("stop at once", 4)):
        scene = seen[name]
        assert f"step {step}: loss or gradient is not finite" in scene["error"]
        assert "sample 13, its loss is nan" in scene["error"]
        assert scene["misuse"] is False
        assert scene["steps"] == list(range(1, step + 1))


def test_a_metric_that_only_an_evaluation_can_miss_is_told_then(seen: dict[str, Any]) -> None:
    scene = seen["no such term"]
    assert "best.metric=val/loss/aux is not measured" in scene["error"] and scene["misuse"]
    assert "val/accuracy, val/loss" in scene["error"]


def test_a_stream_ends_its_epoch_where_it_ends(seen: dict[str, Any]) -> None:
    assert seen["short stream"]["epoch"] == 2
    assert "on rank 0" in seen["uneven stream"]["error"] and "on rank 1" in seen["uneven stream"]["error"]
    assert "the same stream on every rank" in seen["uneven stream"]["error"]
