"""Which branch of a model is used where, and what the gradients over all ranks must then be."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Term, total_loss
from lockstep.runtime.parallel.replica import Replica
from lockstep.runtime.parallel.shards import Shards
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.state.tensors import whole
from lockstep.runtime.world import World

Use = Callable[[int, int, int, int, int], str]  # (rank, num_ranks, step, micro, num_micro) -> names of used branches


class Branches(nn.Module):
    """Branches a, b, c, d; with `tied`, d has the weight of c."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name in "abcd":
            setattr(self, name, nn.Linear(3, 3).double())
        if tied:
            self.d.weight = self.c.weight

    def forward(self, x: Tensor, use: str) -> Tensor | None:
        outputs = [getattr(self, name)(x).square().sum() for name in use]
        return torch.stack(outputs).sum() if outputs else None


@dataclass(frozen=True)
class Batch:
    x: Tensor
    use: str


class BranchTask(Recipe):
    """A branch that no sample takes gives a constant loss, as users write it."""

    def __init__(self, tied: bool = False) -> None:
        self.tied = tied

    def model(self) -> nn.Module:
        return Branches(self.tied)

    def train_data(self) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch) -> Mapping[str, Term]:
        value = model(batch.x, batch.use)
        return {"loss": Term(torch.zeros((), dtype=torch.float64) if value is None else value, len(batch.x))}


PATTERNS: dict[str, Use] = {
    "everything everywhere": lambda r, n, s, m, k: "abcd",
    "one branch nowhere": lambda r, n, s, m, k: "abd",
    "a branch on rank 0": lambda r, n, s, m, k: "abcd" if r == 0 else "bcd",
    "a branch on the last rank": lambda r, n, s, m, k: "abcd" if r == n - 1 else "abd",
    "each rank its own": lambda r, n, s, m, k: "abcd"[r % 4],
    "another one each step": lambda r, n, s, m, k: "abcd"[(s + r) % 4] + "abcd"[(s + r + 1) % 4],
    "new in step 2": lambda r, n, s, m, k: "abcd" if s >= 2 else "ab",
    "gone after step 1": lambda r, n, s, m, k: "ab" if s > 1 else "abcd",
    "in the first micro-step alone": lambda r, n, s, m, k: "abcd" if m == 0 else "bd",
    "in the first micro-step of rank 0": lambda r, n, s, m, k: "abcd" if (r, m) == (0, 0) else "ab",
    "in the last micro-step of rank 0": lambda r, n, s, m, k: "abcd" if (r, m) == (0, k - 1) else "ab",
    "micro-steps in turn": lambda r, n, s, m, k: "abcd"[m % 4],
    "nothing on rank 0": lambda r, n, s, m, k: "" if r == 0 and n > 1 else "abcd",
    "nothing in the last micro-step": lambda r, n, s, m, k: "" if m == k - 1 and k > 1 else "abcd",
    "nothing on rank 0 in step 1": lambda r, n, s, m, k: "" if (r, s) == (0, 1) and n > 1 else "acd",
}
STEPS = 3


def batch_of(use: Use, rank: int, num_ranks: int, step: int, micro: int, num_micro: int) -> Batch:
    generator = torch.Generator().manual_seed(1000 * rank + 100 * step + micro)
    return Batch(
        torch.randn(2 + rank, 3, generator=generator, dtype=torch.float64), use(rank, num_ranks, step, micro, num_micro)
    )


def expected_of(
    task: BranchTask, use: Use, num_ranks: int, step: int, num_micro: int
) -> tuple[dict[str, Tensor | None], frozenset[str]]:
    """Gradients of the mean over all ranks and micro-steps, and the parameters that some rank did not use."""
    model, count, missing = task.model(), 0, set()
    shared = {id(model.c.weight): "cd"} if task.tied else {}
    losses = []
    for rank in range(num_ranks):
        batches = [batch_of(use, rank, num_ranks, step, micro, num_micro) for micro in range(num_micro)]
        count += sum(len(batch.x) for batch in batches)
        losses += [value for batch in batches if (value := model(batch.x, batch.use)) is not None]
        used = {name for batch in batches for name in batch.use}
        for name, param in model.named_parameters():
            if not used & set(shared.get(id(param), name[0])):
                missing.add(name)
    torch.stack(losses).sum().backward()
    return {n: None if p.grad is None else p.grad / count for n, p in model.named_parameters()}, frozenset(missing)


def problems(
    world: World, use: Use, num_micro: int, config: ParallelConfig, tied: bool = False, sharded: bool = False
) -> list[str]:
    """Train a few steps; how the gradients and the named parameters differ from what they must be."""
    task, found = BranchTask(tied), []
    model = task.model()
    replica: Wrapped = Shards(model, task, world, {}, config) if sharded else Replica(model, task, world, config)
    params = list(replica.model.parameters())
    for step in range(STEPS):
        expected, missing = expected_of(task, use, world.num_ranks, step, num_micro)
        count = sum((2 + rank) * num_micro for rank in range(world.num_ranks))
        for param in replica.model.parameters():
            param.grad = None
        for micro in range(num_micro):
            last = micro == num_micro - 1
            batch = batch_of(use, world.rank, world.num_ranks, step, micro, num_micro)
            with nullcontext() if last else replica.accumulating():
                terms = replica.forward(batch)
                replica.backward(total_loss(terms, {"loss": count}, world.num_ranks), last)
        norm = replica.norm(params)
        wanted_norm = nn.utils.get_total_norm([want for want in expected.values() if want is not None])
        if not tied and not torch.allclose(norm, wanted_norm, 1e-12):
            found.append(f"step {step}: the norm is {float(norm)}, must be {float(wanted_norm)}")
        for name, param in replica.model.named_parameters():
            want, grad = expected[name], None if param.grad is None else whole(param.grad)
            if (want is None) != (grad is None):
                found.append(f"step {step}: {name} has {grad}, must have {want}")
            elif want is not None and grad is not None and not torch.allclose(grad, want, 1e-12, 1e-15):
                found.append(f"step {step}: {name} is off by {float((grad - want).norm() / want.norm()):.1e}")
        if (sharded or replica.carries) and replica.unused != missing:
            found.append(f"step {step}: named {sorted(replica.unused)}, must name {sorted(missing)}")
    replica.close()
    return found
