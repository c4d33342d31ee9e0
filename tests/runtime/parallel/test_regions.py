"""Recomputed and compiled blocks compute what they did, and leave buffers and random numbers as one forward does."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.parallel.regions import _Compiled, compile_blocks, recompute_blocks
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import run


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.calls = 0
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        self.calls += 1
        self.steps += 1
        return x + scale * self.drop(self.norm(self.linear(x)).relu())


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def trained(change: Callable[[Model], Any]) -> tuple[Model, Tensor]:
    torch.manual_seed(0)
    model = Model()
    change(model)
    x = torch.randn(6, 4)
    loss = model(x).square().sum() + model(2 * x).square().sum()
    loss.backward()
    return model, loss.detach()


def test_recomputing_changes_no_number() -> None:
    plain, wanted = trained(lambda model: None)
    model, loss = trained(lambda model: recompute_blocks(model, dict(model.blocks.named_children())))
    assert torch.equal(loss, wanted)
    assert [block.calls for block in model.blocks] == [4, 4]
    assert [block.calls for block in plain.blocks] == [2, 2]
    assert model.state_dict().keys() == plain.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, plain.state_dict()[name]), name
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_without_gradients_nothing_is_recomputed() -> None:
    model = Model()
    recompute_blocks(model, dict(model.blocks.named_children()))
    with torch.no_grad():
        model.eval()(torch.randn(2, 4))
    assert [block.calls for block in model.blocks] == [1, 1]


def test_recomputing_needs_blocks() -> None:
    with pytest.raises(UserError, match=r"(?s)Linear has no blocks.*parallel.blocks"):
        recompute_blocks(nn.Linear(2, 2), {})


def compiled(folder: Path) -> dict[str, Any]:
    found = {}
    with World.enter(threads=1) as world, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, while it compiles
        for name, more in COMPILED.items():
            found[name] = run(world, folder / name, {"depth": 2, "val": 20}, [*TRAINED, *more])
    return found


TRAINED = ["precision=fp64", "batch.global_batch=16", "stop.max_steps=4", "checkpoint.every_epochs=null"]
COMPILED = {
    "plain": [],
    "blocks": ["run.compile=static"],
    "recomputed shards": ["run.compile=static", "parallel.strategy=fsdp", "memory.activation_checkpointing=true"],
    "the model": ["run.compile=dynamic", "parallel.blocks=[]"],
}


@pytest.mark.slow
def test_compiled_the_curve_is_the_same_at_every_n(tmp_path: Path) -> None:
    ranks = {n: run_ranks(compiled, n, tmp_path / str(n), timeout_s=280)[0] for n in (1, 2)}
    wanted = ranks[1]["plain"]
    for found in ranks.values():
        for name, one in found.items():
            assert one["loss"] == pytest.approx(wanted["loss"], rel=1e-12), name
            assert one["results"] == pytest.approx(wanted["results"], rel=1e-12), name


def test_off_leaves_the_model_alone() -> None:
    model = Model()
    compile_blocks(model, dict(model.blocks.named_children()), "off")
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_compiler_that_fails_is_told_in_words() -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    def failing() -> None:
        raise BackendCompilerFailed(compile_blocks, RuntimeError("no C++ compiler"), None)

    with pytest.raises(RunError, match=r"(?s)it failed: .*no C\+\+ compiler.*run.compile=off"):
        _Compiled(failing)()
