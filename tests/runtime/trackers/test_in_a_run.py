"""A run on two ranks that is resumed before its last records: each service has one run, and each step once."""

import json
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lockstep.recipes.points import Points
from lockstep.runtime import About, World, fit, load_config
from tests.ranks import run_ranks
from tests.runtime.trackers.readers import mlflow_runs, wandb_run

pytest.importorskip("wandb")
pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of their own imports

RUN = ["recipe=points", "batch.global_batch=10", "log.every_steps=5", "precision=fp32", "run.threads=1"]
RUN += ["checkpoint.every_steps=10", "evaluate.every_steps=20", "log.tensorboard=off", "log.wandb=offline"]
RUN += ["log.name=näh", "log.project=small"]
SECOND = ["optim.clip_norm=5", "data.workers=1"]  # workers are forked while the trackers run


@dataclass
class Own:
    """A tracker of a user's: it keeps what it is told."""

    name: str = "own"
    told: list[Any] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def about(self, about: About) -> str:
        self._note("about", about.name, about.run_id, about.resumed_at, about.facts["num_ranks"])
        return "mine"

    def record(self, step: int, values: Mapping[str, float]) -> None:
        self._note("record", step, dict(values))

    def finish(self, ending: str, results: Mapping[str, float]) -> None:
        self._note("finish", ending, dict(results))

    def _note(self, *told: Any) -> None:
        self.told.append(told)
        self.threads.add(threading.current_thread().name)


def live(folder: str, limit: int) -> Own:
    """What a rank does: train 25 steps, then, resumed from step 20, to step 30. Its own tracker is returned."""
    own, resume = Own(), limit == 30
    os.chdir(folder)
    config = load_config(None, [*RUN, *(SECOND if resume else []), f"log.mlflow={folder}/ml"])
    with World.enter("cpu", 1) as world:
        fit(Points(), config, world, Path(folder) / "run", resume=resume, max_steps=limit, trackers=[own])
    assert "WANDB_SERVICE" not in os.environ
    return own


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Own]]]:
    folder = tmp_path_factory.mktemp("trackers")
    first = run_ranks(live, 2, str(folder), 25, timeout_s=150)
    shutil.rmtree(folder / "run" / "checkpoints" / "step-00000025")
    return folder / "run", [first, run_ranks(live, 2, str(folder), 30, timeout_s=150)]


def logged(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve of metrics.jsonl."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, value in record.items():
            if isinstance(value, int | float) and name != "step":
                found.setdefault(name, []).append((record["step"], value))
    return found


def test_mlflow_has_one_run_with_each_step_once(lived: tuple[Path, Any]) -> None:
    (run,) = mlflow_runs(lived[0].parent / "ml" / "mlflow.db")
    assert (run["project"], run["name"], run["status"], run["tags"]["ending"]) == (
        "small",
        "näh",
        "FINISHED",
        "stopped",
    )
    assert run["metrics"]["loss"] == logged(lived[0])["loss"]
    assert [step for step, _ in run["metrics"]["loss"]] == [5, 10, 15, 20, 25, 30]
    assert run["metrics"]["val/loss"] == logged(lived[0])["val/loss"]
    assert [step for step, _ in run["metrics"]["memory_mib/rank_1"]] == [5, 10, 15, 20, 25, 30]


def test_mlflow_has_config_facts_and_what_the_second_start_changed(lived: tuple[Path, Any]) -> None:
    (run,) = mlflow_runs(lived[0].parent / "ml" / "mlflow.db")
    assert run["params"]["batch.global_batch"] == "10" and run["params"]["optim.clip_norm"] == "null"
    assert run["tags"]["changed.optim.clip_norm"] == "5.0"
    assert run["tags"]["manifest.num_ranks"] == "2" and run["tags"]["manifest.device.type"] == "cpu"
    assert run["tags"]["manifest.contract"].startswith("global batch 10 = 5 per rank x 2 ranks")


def test_wandb_has_one_run_in_a_folder_for_each_start(lived: tuple[Path, Any]) -> None:
    runs = [wandb_run(folder) for folder in sorted((lived[0] / "wandb").glob("offline-run-*"))]
    assert len(runs) == 2 and len({run["id"] for run in runs}) == 1
    assert [(run["project"], run["name"], run["exit"]) for run in runs] == [("small", "näh", 0)] * 2
    assert [sorted(run["history"]) for run in runs] == [[5, 10, 15, 20, 25], [30]]
    losses = {step: values["loss"] for run in runs for step, values in run["history"].items()}
    assert losses == dict(logged(lived[0])["loss"])
    assert runs[0]["history"][20]["val/loss"] == logged(lived[0])["val/loss"][0][1]
    assert runs[1]["summary"]["ending"] == "stopped"


def test_wandb_has_config_and_facts(lived: tuple[Path, Any]) -> None:
    first, second = (wandb_run(folder)["config"] for folder in sorted((lived[0] / "wandb").glob("offline-run-*")))
    assert first["batch.global_batch"] == 10 and first["optim.clip_norm"] is None and second["optim.clip_norm"] == 5
    assert first["manifest.num_ranks"] == 2 and first["manifest.device.type"] == "cpu"
    assert first["manifest.contract"].startswith("global batch 10 = 5 per rank x 2 ranks")


def test_one_of_your_own_is_told_the_same_on_rank_0_only(lived: tuple[Path, list[list[Own]]]) -> None:
    _, ((first, idle), (second, idle_too)) = lived
    assert idle.told == idle_too.told == []
    assert first.told[0] == ("about", "näh", None, None, 2) and second.told[0] == ("about", "näh", "mine", 20, 2)
    assert [told[1] for told in first.told if told[0] == "record"] == [5, 10, 15, 20, 20, 25]
    assert [told[1] for told in second.told if told[0] == "record"] == [30]
    assert first.told[-1][:2] == ("finish", "stopped") and first.told[-1][2]["val/loss"] > 0
    assert first.threads == {"tracker own"}


def test_the_ids_are_kept_in_the_runs_folder(lived: tuple[Path, Any]) -> None:
    kept = json.loads((lived[0] / "trackers.json").read_text())
    assert set(kept) == {"W&B", "MLflow", "own"} and kept["own"]["id"] == "mine"
    assert {entry["sent"]["loss"] for entry in kept.values()} == {30}
