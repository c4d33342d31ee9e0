"""Parameters that some rank does not use: the right gradient, named, and never a hang, whatever the pattern."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lockstep.core.errors import RunError
from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Term, total_loss
from lockstep.runtime.parallel.replica import Replica
from lockstep.runtime.parallel.unused import _refusal
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.parallel.patterns import PATTERNS, Batch, BranchTask, problems

KINDS = [
    (1, "one bucket", ParallelConfig()),
    (3, "one bucket", ParallelConfig()),
    (1, "many buckets", ParallelConfig(bucket_mb=1e-5)),
    (2, "many buckets", ParallelConfig(bucket_mb=1e-5)),
]
Found = dict[tuple[str, int, str], list[str]]


def all_patterns() -> Found:
    with World.enter(threads=1) as world:
        found = {
            (name, micro, buckets): problems(world, use, micro, config)
            for name, use in PATTERNS.items()
            for micro, buckets, config in KINDS
        }
        # What tells a gradient as written must not depend on how often it was written before.
        for name in ("everything everywhere", "micro-steps in turn"):
            for micro in (2, 4, 6):
                found[name, micro, "one bucket"] = problems(world, PATTERNS[name], micro, ParallelConfig())
        for name in ("a branch on rank 0", "each rank its own", "micro-steps in turn"):
            for micro in (1, 3):
                key = f"{name}, tied weights", micro, "one bucket"
                found[key] = problems(world, PATTERNS[name], micro, ParallelConfig(), tied=True)
        return found


@pytest.fixture(scope="module")
def found() -> dict[int, list[Found]]:
    return {n: run_ranks(all_patterns, n) for n in (1, 2, 3)}


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_has_the_gradients_of_one_process(
    found: dict[int, list[Found]], name: str, num_ranks: int
) -> None:
    for rank in found[num_ranks]:
        wrong = {key: lines for key, lines in rank.items() if key[0].split(",")[0] == name and lines}
        assert not wrong


class Zero(torch.autograd.Function):
    """Gives no gradient, not even zeros, for its second input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad, None


class Odd(nn.Module):
    """A small network used in ways that have broken others."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.steps = how, 0
        self.first, self.second = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()

    def forward(self, x: Tensor, rank: int) -> Tensor:
        self.steps += 1
        match self.how:
            case "no gradient at all for a used one":
                return Zero.apply(self.first(x), self.second.weight)  # type: ignore[no-any-return]
            case "frozen in every second step":
                self.second.requires_grad_(self.steps % 2 == 0)
            case "frozen on rank 0":
                self.second.requires_grad_(rank != 0)
            case "called twice":
                return self.first(self.first(x)) + self.second(x)
            case "reentrant checkpoint":
                x = x.clone().requires_grad_()
                return checkpoint(self.second, checkpoint(self.first, x, use_reentrant=True), use_reentrant=True)
            case "checkpoint on rank 0, a branch on rank 1":
                h = self.first(x)
                return checkpoint(self.second, h, use_reentrant=False) if rank == 0 else h
            case "gradient penalty":
                x = x.clone().requires_grad_()
                out = self.second(torch.tanh(self.first(x)))
                (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
                return out + slope
            case "through a detached half":
                return self.first(x) + self.second(x).detach()
        return self.second(self.first(x))


ODD = [
    "no gradient at all for a used one",
    "frozen in every second step",
    "frozen on rank 0",
    "called twice",
    "reentrant checkpoint",
    "checkpoint on rank 0, a branch on rank 1",
    "gradient penalty",
    "through a detached half",
]


class OddTask(Recipe):
    def __init__(self, how: str, rank: int) -> None:
        self.how, self.rank = how, rank

    def model(self) -> nn.Module:
        return Odd(self.how)

    def train_data(self) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return {"loss": Term(model(batch, self.rank).square().sum(), len(batch))}


def inputs_of(rank: int, step: int) -> Tensor:
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(10 * rank + step), dtype=torch.float64)


def odd_problems(world: World, how: str) -> list[str]:
    """Against the sum of what each rank's share gives in one process."""
    task, found = OddTask(how, world.rank), []
    replica = Replica(task.model(), task, world, ParallelConfig())
    alone = [OddTask(how, rank) for rank in range(world.num_ranks)]
    models = [one.model() for one in alone]
    for step in range(5):
        sums: dict[str, Tensor] = {}
        for rank, (one, model) in enumerate(zip(alone, models, strict=True)):
            model.zero_grad()
            one.loss(model, inputs_of(rank, step))["loss"].sum.backward()
            for name, param in model.named_parameters():
                if param.grad is not None:
                    sums[name] = sums.get(name, torch.zeros_like(param.grad)) + param.grad
        for param in replica.model.parameters():
            param.grad = None
        replica.backward(total_loss(replica.forward(inputs_of(world.rank, step)), {"loss": 4}, world.num_ranks), True)
        for name, param in replica.model.named_parameters():
            if (param.grad is None) != (name not in sums):
                found.append(f"step {step}: {name} has {param.grad}")
            elif param.grad is not None and not torch.allclose(param.grad, sums[name] / 4, 1e-12, 1e-15):
                found.append(f"step {step}: {name} is wrong")
    replica.close()
    return found


def all_odd() -> dict[str, list[str]]:
    with World.enter(threads=1) as world:
        return {how: odd_problems(world, how) for how in ODD}


@pytest.fixture(scope="module")
def odd() -> dict[int, list[dict[str, list[str]]]]:
    return {n: run_ranks(all_odd, n) for n in (1, 2)}


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("how", ODD)
def test_unusual_use_has_the_gradients_of_one_process(
    odd: dict[int, list[dict[str, list[str]]]], how: str, num_ranks: int
) -> None:
    for rank in odd[num_ranks]:
        assert not rank[how]


def refused(use: list[str]) -> tuple[str, str]:
    """With find_unused=off: what a step says in which the last micro-step, and then none, uses everything."""
    with World.enter(threads=1) as world:
        task = BranchTask()
        replica = Replica(task.model(), task, world, ParallelConfig(find_unused="off"))
        said = []
        for names in use:
            for param in replica.model.parameters():
                param.grad = None
            x = torch.ones(2, 3, dtype=torch.float64)
            with replica.accumulating():
                replica.backward(total_loss(replica.forward(Batch(x, "abcd")), {"loss": 1}, 1), False)
            for param in replica.model.parameters():
                param.grad = param.grad if names == "earlier" else None
            try:
                used = "ab" if names == "earlier" else names
                replica.backward(total_loss(replica.forward(Batch(x, used)), {"loss": 1}, 1), True)
                said.append("")
            except RunError as error:
                said.append(str(error))
        replica.close()
        return said[0], said[1]


def test_off_refuses_by_name_and_says_what_to_do() -> None:
    for rank, (said, again) in enumerate(run_ranks(refused, 2, ["earlier", "abd"])):
        assert said == ""  # used in an earlier micro-step is used
        assert again.splitlines()[0] == f"rank {rank}: no gradient for c.weight, c.bias."
        assert "with parallel.find_unused=off every parameter gets a gradient" in again
        assert "set parallel.find_unused=auto" in again


def test_many_names_are_cut() -> None:
    text = _refusal([f"layer{i}.weight" for i in range(20)], 3)
    assert "rank 3: no gradient for layer0.weight" in text
    assert "layer7.weight and 12 more" in text
    assert "layer8" not in text


def never_freed() -> int:
    """Hooks that held the model would keep every model of a process alive."""
    import gc
    import weakref

    with World.enter(threads=1) as world:
        task = BranchTask()
        replica = Replica(task.model(), task, world, ParallelConfig())
        x = torch.ones(2, 3, dtype=torch.float64)
        replica.backward(total_loss(replica.forward(Batch(x, "ab")), {"loss": 1}, 1), True)
        alive = weakref.ref(replica.model)
        replica.close()
        del replica
        gc.collect()
        return int(alive() is not None)


def test_a_closed_replica_is_freed() -> None:
    assert run_ranks(never_freed, 1) == [0]
