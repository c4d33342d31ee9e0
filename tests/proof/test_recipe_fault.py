"""The fault rung of recipes. That a built-in one passes is in tests/proof/test_recipe.py."""

from pathlib import Path
from typing import Any

import pytest

from lockstep.core.proof import Proof, Rung, Status
from lockstep.proof.recipe import prove_recipe
from lockstep.proof.recipe_fault import recipe_fault
from lockstep.proof.takes import Settings
from tests.proof.apart import apart
from tests.proof.by_hand import Made, take

OWN = """
import atexit
import subprocess
import torch
from torch import nn
from torch.utils.data import TensorDataset
from lockstep.runtime.loss import Term
from lockstep.runtime.recipe import Recipe

class Own(Recipe):
    def __init__(self, kind: str = "right"):
        self.kind, self.calls = kind, 0
        draw = torch.Generator().manual_seed(3)
        self.data = TensorDataset(torch.randn(48, 5, generator=draw, dtype=torch.float32))
        if kind == "helper":
            helper = subprocess.Popen(["sleep", "61.5"], start_new_session=True)
            atexit.register(helper.kill)

    def model(self):
        return nn.Linear(5, 2)

    def train_data(self):
        return self.data

    def loss(self, model, batch):
        self.calls += 1
        weight = self.calls if self.kind == "counts" else 1
        outputs = model(batch[0])
        return {"loss": Term(outputs.square().sum() * weight, outputs.numel())}
"""


def rung(folder: Path, kind: str) -> Rung:
    home = folder / "home"
    home.mkdir()
    (home / "own.py").write_text(OWN, encoding="utf-8")
    overrides = ("recipe=own.py:Own", f"options.kind={kind}", "batch.global_batch=12")
    proof = apart(prove_recipe, None, overrides, Settings(steps=4), (), True, folder=home)
    assert isinstance(proof, Proof)
    return next(one for one in proof.rungs if one.name == "fault")


def test_too_few_steps_for_two_saves(tmp_path: Path) -> None:
    recipes: Any = None
    plain = take(tmp_path / "plain", [Made(), Made()], [Made(), Made()])
    assert recipe_fault(recipes, Settings(), plain) is None


@pytest.mark.slow
def test_state_that_a_killed_run_loses_is_seen(tmp_path: Path) -> None:
    """The recipe counts its calls, and no checkpoint holds the count."""
    found = rung(tmp_path, "counts")
    assert found.status is Status.FAIL, found
    assert "resumed at step 1, it is not the untouched run" in found.said
    assert found.differences[0].step == 1


@pytest.mark.slow
def test_a_process_that_outlives_a_failed_rank_is_seen(tmp_path: Path) -> None:
    found = rung(tmp_path, "helper")
    assert found.status is Status.FAIL, found
    assert [one.code for one in found.findings] == ["LS418"]
    assert "sleep 61.5" in found.said
