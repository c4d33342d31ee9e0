"""FSDP2: the gradients of one process whatever each rank uses, paired forwards, and what it cannot do in words."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.core.errors import LockstepError, RunError, UserError
from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Term, total_loss
from lockstep.runtime.parallel.blocks import blocks_of
from lockstep.runtime.parallel.local import local
from lockstep.runtime.parallel.shards import Shards, _shareable
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
    def __init__(self, kind: str = "", route: bool = False) -> None:
        self.kind, self.route = kind, route

    def model(self) -> nn.Module:
        return Layered()

    def train_data(self) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Tensor) -> Mapping[str, Term]:
        value = model(batch, not self.route or bool(batch.sum() > 0)).square().sum()
        if self.kind == "twice":
            batch = batch.clone().requires_grad_()
            (slope,) = torch.autograd.grad(model(batch).sum(), batch, create_graph=True)
            value = value + slope.square().sum()
        if self.kind == "again":
            value = value + model(2 * batch).square().sum()
        if self.kind == "penalty":
            value = value + sum((param * torch.ones_like(batch[0])).sum() for param in model.parameters())
        return {"loss": Term(value.detach() if self.kind == "constant" else value, len(batch))}


def refusal(world: World, model: nn.Module, task: Task, sign: float = 1.0) -> str:
    try:
        shards = Shards(model, task, world, blocks_of(model, "auto"), ParallelConfig())
        terms = shards.forward(torch.full((2, 3), sign))
        shards.backward(total_loss(terms, {"loss": 2.0}, world.num_ranks), last=True)
    except LockstepError as error:
        return str(error)
    return ""


def unused_refused(world: World, model: Layered, first: bool) -> str:
    """What `find_unused=off` says to a step in which every block, or all but the first, is used."""
    shards = Shards(model, Task(), world, {}, ParallelConfig(find_unused="off"))
    params = list(model.parameters())
    loss = model_loss(shards, torch.ones(2, 3), first)
    shards.backward(loss, last=True)
    try:
        shards.norm(params)
    except RunError as error:
        return str(error)
    return ""


def model_loss(shards: Shards, x: Tensor, first: bool) -> Tensor:
    shards.recipe.route = not first  # type: ignore[attr-defined]  # with samples below 0 the first block is left out
    return shards.forward(x if first else -x)["loss"].sum


def everything() -> dict[str, Any]:
    with World.enter(threads=1) as world:
        found: dict[str, Any] = {}
        for name, use in USED.items():
            for micro in (1, 3):
                found[f"{name}, {micro}"] = problems(world, use, micro, ParallelConfig(), sharded=True)
        found["tied"] = problems(world, USED["each rank its own"], 2, ParallelConfig(), tied=True, sharded=True)
        found["shards"] = split(world)
        found["stale"] = stale(world)
        found["stale, kept gathered"] = stale(world, reshard_after_forward=False)
        found["nested"] = nested(world)
        found["twice"] = twice(world)
        found["read buffer"] = read_buffer(world)
        found["ties"] = refusal(world, Layered(ties=True), Task())
        shared, inner = Layered(), nn.Linear(3, 3)
        shared.blocks = nn.ModuleList([nn.Sequential(inner), nn.Sequential(inner)])
        found["shared module"] = refusal(world, shared, Task())
        found["outside"] = refusal(world, Layered(), Task("penalty"))
        found["scalar"] = refusal(world, Layered(scalar=True), Task())
        found["constant"] = refusal(world, Layered(), Task("constant"))
        found["gradient of a gradient"] = refusal(world, Layered(), Task("twice"))
        found["unused"] = unused_refused(world, Layered(), first=False), unused_refused(world, Layered(), first=True)
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


def stale(world: World, **config: Any) -> list[float]:
    """The loss of an evaluation, with other weights, and with the first ones again."""
    model = Layered()
    shards = Shards(model, Task(), world, blocks_of(model, "auto"), ParallelConfig(**config))
    x, losses, params = torch.ones(2, 3), [], list(model.parameters())
    for factor in (1.0, 2.0, 0.5):
        with torch.no_grad():
            for param in params:
                local(param).mul_(factor)
        with torch.no_grad(), shards.evaluating():
            losses.append(float(shards.evaluate(x, {})["loss"].sum))
    return losses


class Pair(nn.Module):
    """Takes a mapping; only rank 0 uses its second layer."""

    def __init__(self, uses: bool) -> None:
        super().__init__()
        self.uses, self.main, self.idle = uses, nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, inputs: Mapping[str, list[Tensor]]) -> Tensor:
        y = self.main(inputs["x"][0])
        return y + self.idle(y) if self.uses else y


class Nested(nn.Module):
    def __init__(self, uses: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.stem, self.blocks = nn.Linear(3, 3), nn.ModuleList([Pair(uses)])

    def forward(self, x: Tensor, first: bool = True) -> Tensor:
        return self.blocks[0]({"x": [self.stem(x)]})


def nested(world: World) -> list[str]:
    """What was named as unused on some rank; without a reduction of equal sizes this would not end."""
    model = Nested(uses=world.rank == 0 and world.num_ranks > 1)
    shards = Shards(model, Task(), world, blocks_of(model, "auto"), ParallelConfig())
    params = list(model.parameters())
    terms = shards.forward(torch.ones(2, 3))
    shards.backward(total_loss(terms, {"loss": 2.0 * world.num_ranks}, world.num_ranks), last=True)
    shards.norm(params)
    shards.close()
    return sorted(shards.unused)


class Often(nn.Module):
    """Each block twice in a forward, with its result fed to it again."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem, self.blocks = nn.Linear(3, 3), nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: Tensor, first: bool = True) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(block(x).tanh())
        return x


def twice(world: World) -> list[str]:
    """The parameters whose gradient is not that of one process, of a model that is called twice besides."""
    task, model, plain = Task("again"), Often().double(), Often().double()
    shards = Shards(model, task, world, blocks_of(model, "auto"), ParallelConfig())
    params, x = list(model.parameters()), torch.ones(2, 3, dtype=torch.float64)
    terms = shards.forward(x)
    shards.backward(total_loss(terms, {"loss": 2.0 * world.num_ranks}, world.num_ranks), last=True)
    shards.norm(params)
    (task.loss(plain, x)["loss"].sum / 2).backward()
    shards.close()
    pairs = zip(plain.named_parameters(), params, strict=True)
    return [
        name
        for (name, one), other in pairs
        if other.grad is None or not torch.allclose(other.grad.full_tensor(), one.grad, 1e-12)  # type: ignore[attr-defined,arg-type]
    ]


class Centred(Layered):
    """Reads a buffer that it moves."""

    def forward(self, x: Tensor, first: bool = True) -> Tensor:
        self.seen += 0.5 * (x.mean(0).detach() - self.seen)
        return super().forward(x - self.seen)


def read_buffer(world: World) -> list[float]:
    """The buffer after two steps on different samples, on every rank."""
    model = Centred()
    shards = Shards(model, Task(), world, {}, ParallelConfig())
    for _ in range(2):
        terms = shards.forward(torch.full((2, 3), float(world.rank)))
        shards.backward(total_loss(terms, {"loss": 2.0}, world.num_ranks), last=True)
    shards.sync_buffers()
    shards.forward(torch.zeros(2, 3))
    shards.close()
    return model.seen.tolist()


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
    for rank in found[num_ranks]:
        for first, other, again in (rank["stale"], rank["stale, kept gathered"]):
            assert first == again
            assert other > 1.5 * first


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_block_that_is_called_twice_has_its_whole_gradient(
    found: dict[int, list[dict[str, Any]]], num_ranks: int
) -> None:
    assert [rank["twice"] for rank in found[num_ranks]] == [[]] * num_ranks


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_buffer_that_is_read_comes_from_rank_0(found: dict[int, list[dict[str, Any]]], num_ranks: int) -> None:
    assert [rank["read buffer"] for rank in found[num_ranks]] == [[0.0, 0.0, 0.0]] * num_ranks


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_block_whose_inputs_lie_deep_is_filled_too(found: dict[int, list[dict[str, Any]]], num_ranks: int) -> None:
    assert [rank["nested"] for rank in found[num_ranks]] == [["blocks.0.idle.bias", "blocks.0.idle.weight"]] * num_ranks


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_what_it_cannot_do_is_said(found: dict[int, list[dict[str, Any]]], num_ranks: int) -> None:
    for rank in found[num_ranks]:
        assert "blocks.1.weight is shared between blocks.0 and blocks.1" in rank["ties"]
        assert "blocks.1.0.weight is shared between blocks.0 and blocks.1" in rank["shared module"]
        assert "outside of its block's forward" in rank["outside"]
        assert "scale is a single number" in rank["scalar"]
        assert "the loss is a constant" in rank["constant"]
        assert "after a backward within loss()" in rank["gradient of a gradient"]
        refused, passed = rank["unused"]
        assert "no gradient on some rank for blocks.0.bias, blocks.0.weight" in refused
        assert passed == ""


def routed() -> str:
    with World.enter(threads=1) as world:
        return refusal(world, Layered(), Task(route=True), 1.0 if world.rank else -1.0)


def test_a_block_that_one_rank_does_not_call_is_named_on_all() -> None:
    for text in run_ranks(routed, 2):
        assert "the ranks call different blocks (rank 0: blocks.1; rank 1: blocks.0)" in text
        assert "leave out of parallel.blocks what only some samples use" in text


def test_the_parameters_of_a_block_are_of_one_type() -> None:
    model = Layered()
    units = blocks_of(model, "auto")
    model.blocks[1].double()
    _shareable(model, units)  # each block by itself
    model.blocks[0].bias.data = model.blocks[0].bias.double()
    with pytest.raises(UserError, match=r"blocks\.0\.bias is torch\.float64, and other parameters of blocks\.0 are"):
        _shareable(model, units)
    model.blocks[0].bias.requires_grad_(False)
    _shareable(model, units)  # what is not trained takes part in no reduction
