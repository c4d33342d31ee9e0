"""The manifest says what a run was made of, in plain JSON."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import lockstep
from lockstep.core.digest import file_digest
from lockstep.runtime.batch import BatchPlan
from lockstep.runtime.config import load_config
from lockstep.runtime.manifest import describe, source_digest, versions
from lockstep.runtime.precision import Precision
from tests.runtime.tasks import Segment


def manifest(*overrides: str, num_ranks: int = 3) -> dict[str, Any]:
    config = load_config(None, ["recipe=points", "options.note=Größe", *overrides])
    device = torch.device("cpu")
    world = SimpleNamespace(num_ranks=num_ranks, place=SimpleNamespace(num_nodes=1), device=device)
    plan = BatchPlan.of(config.batch, config.optim, num_ranks)
    precision = Precision.of("bf16", device)
    return describe(config, world, plan, precision, "torchrun", "the contract line")  # type: ignore[arg-type]


def test_it_names_all_that_a_repetition_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["lockstep", "train", "recipe=points"])
    found = manifest("batch.global_batch=12", "batch.accumulation=2", "seed=5")
    assert found["contract"] == "the contract line"
    assert (found["num_ranks"], found["num_nodes"], found["global_batch"], found["accumulation"]) == (3, 1, 12, 2)
    assert (found["precision"], found["seed"], found["launch"]) == ("bf16", 5, "torchrun")
    assert found["device"]["type"] == "cpu" and found["device"]["name"]
    assert found["threads_per_rank"] == torch.get_num_threads()
    assert found["argv"] == ["train", "recipe=points"]
    assert found["config"]["batch"]["global_batch"] == 12


def test_it_is_plain_json() -> None:
    found = manifest()
    assert json.loads(json.dumps(found)) == found


def test_the_config_digest_is_of_the_training_and_not_of_the_folder() -> None:
    digest = manifest()["config_digest"]
    assert len(digest) == 64
    assert manifest("run.dir=elsewhere")["config_digest"] == digest
    assert manifest("optim.lr=0.5")["config_digest"] != digest


def test_versions_are_those_installed() -> None:
    found = versions()
    assert found["torch"] == torch.__version__
    assert found["lockstep"] == lockstep.__version__
    assert {"python", "numpy", "safetensors", "torchmetrics"} < found.keys()
    assert all(isinstance(version, str) and version for version in found.values())


def test_the_source_of_a_recipe_is_its_file() -> None:
    file = Path(__file__).with_name("tasks.py")
    assert source_digest(Segment()) == {"file": str(file), "sha256": file_digest(file)}


def test_a_recipe_from_nowhere_has_no_source() -> None:
    typed = type("Typed", (), {"__module__": "nowhere"})
    assert source_digest(typed()) == {}
