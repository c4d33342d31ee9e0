"""Modules that match a pattern compute in float32, whatever is around them and however the model is run."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.core.errors import UserError
from lockstep.runtime.config import load_config
from lockstep.runtime.fp32_modules import compute_in_fp32, matching, temporarily_in_fp32
from lockstep.runtime.loss import Term
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.session import build_session
from lockstep.runtime.step import MicroBatch
from lockstep.runtime.world import World
from tests.ranks import run_ranks

CPU = torch.device("cpu")
BF16 = Precision.of("bf16", CPU)


class Probe(nn.Module):
    """A linear layer that remembers what it got and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.seen[:] = [x.dtype, y.dtype]
        return y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = Probe(), Probe()
        self.body = nn.Sequential(Probe(), nn.Sequential(nn.LayerNorm(4), Probe()))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)))


def gave(model: nn.Module) -> list[str]:
    """The names of the probes that computed in float32."""
    with BF16.autocast():
        model(torch.randn(2, 4))
    return fp32_of(model)


def fp32_of(model: nn.Module) -> list[str]:
    return [n for n, m in model.named_modules() if isinstance(m, Probe) and m.seen[1] == torch.float32]


@pytest.mark.parametrize(
    ("patterns", "fp32"),
    [
        ([], []),
        (["head"], ["head"]),
        (["body"], ["body.0", "body.1.1"]),
        (["body.*"], ["body.0", "body.1.1"]),
        (["body.1"], ["body.1.1"]),
        (["LayerNorm"], []),
        (["Sequential", "st[ae]m"], ["stem", "body.0", "body.1.1"]),
        (["Prob?"], ["stem", "head", "body.0", "body.1.1"]),
        (["Net"], ["stem", "head", "body.0", "body.1.1"]),
        (["body", "body.0", "*"], ["stem", "head", "body.0", "body.1.1"]),
    ],
)
def test_names_and_classes_however_nested(patterns: list[str], fp32: list[str]) -> None:
    model = Net()
    compute_in_fp32(model, patterns, BF16)
    assert gave(model) == fp32
    assert not torch.is_autocast_enabled("cpu")


def test_inputs_are_raised_wherever_they_stand() -> None:
    class Takes(nn.Module):
        def forward(self, pair: Any, *, more: Any) -> Any:
            return [pair[0].dtype, pair[1]["x"].dtype, more.dtype]

    model = nn.Module()
    model.takes = Takes()
    compute_in_fp32(model, ["takes"], BF16)
    low, high, whole = (torch.ones(1, dtype=t) for t in (torch.bfloat16, torch.float64, torch.int64))
    assert model.takes((low, {"x": high}), more=whole) == [torch.float32, torch.float64, torch.int64]


def test_an_error_inside_leaves_autocast_as_it_was() -> None:
    model = Net()
    compute_in_fp32(model, ["body"], BF16)
    with BF16.autocast():
        with pytest.raises(RuntimeError, match="shapes"):
            model.body(torch.ones(2, 3))
        assert torch.is_autocast_enabled("cpu")
        assert model.stem(torch.ones(2, 4)).dtype == torch.bfloat16


def test_compiled_it_gives_the_same() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    compute_in_fp32(model, ["1"], BF16)
    compiled, x = torch.compile(model, backend="aot_eager", fullgraph=True), torch.randn(3, 4)
    with BF16.autocast():
        assert compiled(x).dtype == torch.float32
        assert torch.equal(compiled(x), model(x))
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["fp32", "fp64"])
def test_other_formats_check_the_patterns_and_change_nothing(name: Any) -> None:
    model = Net()
    precision = Precision.of(name, CPU)
    compute_in_fp32(model, ["head"], precision)
    assert "forward" not in vars(model.head)
    with pytest.raises(UserError):
        compute_in_fp32(model, ["haed"], precision)


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("haed", "did you mean head"),
        ("Porbe", "did you mean Probe"),
        ("module.body.0", "did you mean body.0"),
        ("linear", "stem.linear"),
        ("zzzzzz", "its classes are LayerNorm, Linear, Net, Probe, Sequential"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(pattern: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        matching(Net(), ["head", pattern])
    assert f"{pattern!r} matches no module of Net" in str(refused.value)
    assert hint in str(refused.value)


def test_for_a_while_only() -> None:
    model = Net()
    compute_in_fp32(model, ["body"], BF16)
    with temporarily_in_fp32(model, ["head", "body"], BF16):
        assert gave(model) == ["head", "body.0", "body.1.1"]
    assert gave(model) == ["body.0", "body.1.1"]
    assert "forward" not in vars(model.head)


class Task(Recipe):
    def model(self) -> nn.Module:
        return Net()

    def train_data(self) -> Dataset[Any]:
        return torch.utils.data.TensorDataset(torch.ones(24, 4))

    def loss(self, model: nn.Module, batch: Any) -> dict[str, Term]:
        return {"squares": Term(model(batch[0]).square().sum(), len(batch[0]))}


WAYS = {
    "ddp": [],
    "sharded": ["parallel.strategy=fsdp", "parallel.blocks=[body.*]"],
    "recomputed": ["parallel.blocks=[body]", "memory.activation_checkpointing=true"],
}


def trained_and_evaluated() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with World.enter(threads=1) as world:
        for way, overrides in WAYS.items():
            base = ["recipe=x.py:Task", "log.tensorboard=off", "precision=bf16", "precision.fp32_modules=[body]"]
            session = build_session(Task(), load_config(None, [*base, *overrides]), world, None)
            batch = [torch.ones(4, 4)]
            assert session.step.run([MicroBatch(batch, batch)]).updated
            trained = fp32_of(session.model)
            with session.replica.evaluating(), torch.no_grad(), session.precision.autocast():
                session.replica.evaluate(batch, {})
            found[way] = trained, fp32_of(session.model)
            session.replica.close()
    return found


def test_in_training_and_evaluation_of_several_ranks() -> None:
    for rank in run_ranks(trained_and_evaluated, 2):
        assert rank == dict.fromkeys(WAYS, (["body.0", "body.1.1"], ["body.0", "body.1.1"]))
