"""The proof of recipes: built-in ones, the example, and some that are wrong on purpose."""

from pathlib import Path

import pytest

from lockstep.core.outcome import Exit
from lockstep.core.proof import Proof, Rung, Status
from lockstep.proof.recipe import prove_recipe
from lockstep.proof.takes import Settings
from tests.proof.apart import apart

POINTS = ("recipe=points", "options.samples=64", "options.val_samples=16", "batch.global_batch=16", "stop.epochs=2")
OWN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from lockstep.runtime.loss import Term
from lockstep.runtime.recipe import Recipe

class Own(Recipe):
    def __init__(self, loss: str = "right"):
        self.kind = loss
        if loss == "wrong in shards":
            from lockstep.runtime.parallel.shards import Shards
            norm = Shards.norm

            def longer(shards, params):
                for param in params:
                    if param.grad is not None:
                        param.grad.mul_(1.5)
                return norm(shards, params)

            Shards.norm = longer
        draw = torch.Generator().manual_seed(3)
        self.data = TensorDataset(torch.randn(48, 5, generator=draw, dtype=torch.float32))

    def model(self):
        return nn.Linear(5, 2)

    def train_data(self):
        return self.data

    def loss(self, model, batch):
        outputs = model(batch[0])
        if self.kind == "of the mean":
            return {"loss": Term(outputs.mean(0).square().sum() * len(outputs), len(outputs))}
        if self.kind == "noisy":
            outputs = outputs + torch.randn_like(outputs)
        return {"loss": Term(outputs.square().sum(), len(outputs))}
"""


def prove(
    folder: Path, *overrides: str, config: str = "", all_rungs: bool = False, accept: tuple[str, ...] = ()
) -> Proof:
    """In a folder with the recipe above as own.py."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "own.py").write_text(OWN, encoding="utf-8")
    (home / "config.yaml").write_text(config, encoding="utf-8")
    path = Path("config.yaml") if config else None
    proof = apart(prove_recipe, path, overrides, Settings(steps=4), accept, all_rungs, folder=home)
    assert isinstance(proof, Proof)
    return proof


def rung(proof: Proof, name: str) -> Rung:
    return next(one for one in proof.rungs if one.name == name)


def test_points_are_the_same_training_on_two_ranks(tmp_path: Path) -> None:
    proof = prove(tmp_path, *POINTS)
    assert proof.exit is Exit.DONE, proof.rungs
    names = ["one process", "2 processes", "partition", "mirror", "shard", "resume", "fault"]
    assert [one.name for one in proof.rungs] == names
    assert float(rung(proof, "shard").said.rpartition(" ")[2]) < 1e-12
    assert "2 ranks ran 8 steps" in rung(proof, "2 processes").said
    assert "32 + 32 of 64 samples" in rung(proof, "partition").said
    assert "the global batches of 4 steps are those of one process" in rung(proof, "partition").said
    assert "bit for bit over 2 steps; one rank goes on with the same weights and samples" in rung(proof, "resume").said
    assert "rank 0 killed in its save (step 2)" in rung(proof, "fault").said
    assert "it went on from step 1, 3 steps bit for bit" in rung(proof, "fault").said
    one, two = proof.curves
    assert len(one.values) == 4
    assert two.values == pytest.approx(one.values, rel=1e-12)
    assert list(tmp_path.joinpath("home").glob("*")) and not tmp_path.joinpath("home", "runs").exists()


def test_shards_are_proven_too_and_a_short_run_is_stopped_at_its_half(tmp_path: Path) -> None:
    proof = prove(tmp_path, *POINTS, "parallel.strategy=fsdp", "stop.max_steps=3", "optim.name=sgd")
    assert proof.exit is Exit.DONE, proof.rungs
    assert float(rung(proof, "shard").said.rpartition(" ")[2]) < 1e-12
    assert "stopped after 1 step" in rung(proof, "resume").said


def test_a_fault_of_the_shards_is_seen_even_on_one_rank(tmp_path: Path) -> None:
    config = "recipe: own.py:Own\nbatch: {global_batch: 12}\nparallel: {strategy: fsdp}\n"
    proof = prove(tmp_path, "options.loss=wrong in shards", config=config)
    broken = rung(proof, "shard")
    assert broken.status is Status.FAIL, proof.rungs
    assert {"gradient"} <= {one.what for one in broken.differences}


def test_a_loss_that_depends_on_the_share_is_found(tmp_path: Path) -> None:
    proof = prove(tmp_path, "options.loss=of the mean", config="recipe: own.py:Own\nbatch: {global_batch: 12}\n")
    broken = rung(proof, "shard")
    assert broken.status is Status.FAIL, proof.rungs
    assert broken.causes[0].code == "LS410"
    assert {"gradient"} <= {one.what for one in broken.differences}
    assert proof.rungs[-1].name == "shard"


def test_an_option_that_is_not_there(tmp_path: Path) -> None:
    proof = prove(tmp_path, *POINTS, "options.hiden=4")
    assert [one.status for one in proof.rungs] == [Status.ERROR]
    assert "did you mean 'hidden'?" in proof.rungs[0].said


@pytest.mark.slow
def test_noise_that_a_loss_draws_cannot_be_judged(tmp_path: Path) -> None:
    proof = prove(tmp_path, "recipe=own.py:Own", "options.loss=noisy", "batch.global_batch=12")
    assert rung(proof, "shard").status is Status.ABSTAIN, proof.rungs
    assert proof.exit is Exit.UNJUDGED


@pytest.mark.slow
def test_local_batchnorm_is_a_deviation(tmp_path: Path) -> None:
    own = (*POINTS, "options.batchnorm=true", "batch.accumulation=2")
    proof = prove(tmp_path, *own, all_rungs=True)
    assert [one.code for one in rung(proof, "2 processes").findings if one.code == "LS116"] == ["LS116"]
    cause = rung(proof, "shard").causes[0]
    assert (cause.code, cause.confirmed) == ("LS116", True)
    assert prove(tmp_path, *own, accept=("LS116",)).exit is Exit.DONE
    assert prove(tmp_path, *own, "parallel.sync_batchnorm=true").exit is Exit.DONE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["example", "digit_scenes"])
def test_other_recipes(name: str, tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "my_recipe.py"
    scenes = ["options.train_scenes=32", "options.val_scenes=8", "options.width=4", "options.depth=2"]
    overrides = {
        "example": [f"recipe={example}:MyRecipe"],
        "digit_scenes": ["recipe=digit_scenes", *scenes, "batch.global_batch=8", "parallel.sync_batchnorm=true"],
    }
    proof = prove(tmp_path, *overrides[name])
    assert proof.exit is Exit.DONE, proof.rungs
