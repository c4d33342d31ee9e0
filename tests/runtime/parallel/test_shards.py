"""FSDP2: the gradients of one process whatever each rank uses, paired forwards, and what it cannot do in words."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.core.errors import LockstepError
from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Term, total_loss
from lockstep.runtime.parallel.blocks import blocks_of
from lockstep.runtime.parallel.local import local
from lockstep.runtime.parallel.shards import Shards
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.parallel.patterns import PATTERNS, problems

# A rank that uses nothing at all has no backward to run, which the others wait for.
USED = {name: use for name, use in PATTERNS.items() if not name.startswith("nothing")}


class Layered(nn.Module):
    """Two blocks; `route` may leave out the first, `ties` makes both share a weight, `scalar` has a number."""

    def __init__(self, ties: bool = False, scalar: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.register_buffer("seen", torch.zeros(3))
        if ties:
            self.blocks[1].weight = self.blocks[0].weight
        if scalar:
            self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, first: bool = True) -> Tensor:
        return self.blocks[1](self.blocks[0](x) if first else x)


class Task(Recipe):
    def __init__(self, constant: bool = False, route: bool = False) -> None:
        self.constant, self.route = constant, route

    def model(self) -> nn.Module:
        return Layered()

    def train_data(self) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Tensor) -> Mapping[str, Term]:
        value = model(batch, not self.route or bool(batch.sum() > 0)).square().sum()
        return {"loss": Term(value.detach() if self.constant else value, len(batch))}


def refusal(world: World, model: nn.Module, task: Task, sign: float = 1.0) -> str:
    try:
        shards = Shards(model, task, world, blocks_of(model, "auto"), ParallelConfig())
        terms = shards.forward(torch.full((2, 3), sign))
        shards.backward(total_loss(terms, {"loss": 2.0}, world.num_ranks), last=True)
    except LockstepError as error:
        return str(error)
    return ""


def everything() -> dict[str, Any]:
    with World.enter(threads=1) as world:
        found: dict[str, Any] = {}
        for name, use in USED.items():
            for micro in (1, 3):
                found[f"{name}, {micro}"] = problems(world, use, micro, ParallelConfig(), sharded=True)
        found["tied"] = problems(world, USED["each rank its own"], 2, ParallelConfig(), tied=True, sharded=True)
        found["shards"] = split(world)
        found["stale"] = stale(world)
        found["ties"] = refusal(world, Layered(ties=True), Task())
        found["scalar"] = refusal(world, Layered(scalar=True), Task())
        found["constant"] = refusal(world, Layered(), Task(constant=True))
        return found


def split(world: World) -> dict[str, Any]:
    """How much of each parameter a rank holds; rank 0's weights and buffers are everybody's."""
    model = Layered()
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            value.add_(world.rank)
    shards = Shards(model, Task(), world, blocks_of(model, "auto"), ParallelConfig())
    weight = model.blocks[0].weight
    assert isinstance(weight, DTensor)
    found = {"rows": len(local(weight)), "weight": weight.full_tensor().detach(), "seen": model.seen.clone()}
    shards.close()
    return found


def stale(world: World) -> list[float]:
    """The loss of an evaluation, with other weights, and with the first ones again."""
    model = Layered()
    shards = Shards(model, Task(), world, {}, ParallelConfig())
    x, losses = torch.ones(2, 3), []
    for factor in (1.0, 2.0, 0.5):
        with torch.no_grad():
            for param in model.parameters():
                local(param).mul_(factor)
        with torch.no_grad(), shards.evaluating():
            losses.append(float(shards.evaluate(x, {})["loss"].sum))
    return losses


@pytest.fixture(scope="module")
def found() -> dict[int, list[dict[str, Any]]]:
    return {n: run_ranks(everything, n) for n in (1, 2, 3)}


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("micro", [1, 3])
@pytest.mark.parametrize("name", USED)
def test_every_pattern_has_the_gradients_of_one_process(
    found: dict[int, list[dict[str, Any]]], name: str, micro: int, num_ranks: int
) -> None:
    assert [rank[f"{name}, {micro}"] for rank in found[num_ranks]] == [[]] * num_ranks


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_tied_weights_of_one_unit(found: dict[int, list[dict[str, Any]]], num_ranks: int) -> None:
    assert [rank["tied"] for rank in found[num_ranks]] == [[]] * num_ranks


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_rank_holds_its_part_of_rank_0s_weights(found: dict[int, list[dict[str, Any]]], num_ranks: int) -> None:
    parts = [rank["split"] if "split" in rank else rank["shards"] for rank in found[num_ranks]]
    assert [part["rows"] for part in parts] == {1: [3], 2: [2, 1], 3: [1, 1, 1]}[num_ranks]
    for part in parts:
        assert torch.equal(part["weight"], Layered().blocks[0].weight.detach())
        assert not part["seen"].any()


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_an_evaluation_sees_the_weights_of_its_moment(found: dict[int, list[dict[str, Any]]], num_ranks: int) -> None:
    for first, other, again in (rank["stale"] for rank in found[num_ranks]):
        assert first == again
        assert other > 1.5 * first


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_what_it_cannot_do_is_said(found: dict[int, list[dict[str, Any]]], num_ranks: int) -> None:
    for rank in found[num_ranks]:
        assert "blocks.1.weight is shared between blocks.0 and blocks.1" in rank["ties"]
        assert "scale is a single number" in rank["scalar"]
        assert "the loss is a constant" in rank["constant"]


def routed() -> str:
    with World.enter(threads=1) as world:
        return refusal(world, Layered(), Task(route=True), 1.0 if world.rank else -1.0)


def test_a_block_that_one_rank_does_not_call_is_named_or_waits() -> None:
    """With a block less the ranks' calls do not fit: they are compared, or a rank waits for what never comes."""
    with pytest.raises(AssertionError):
        run_ranks(routed, 2, timeout_s=8)
