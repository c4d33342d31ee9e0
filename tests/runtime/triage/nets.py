"""Small networks that overflow where they are told to, and one step of them with its triage."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.runtime.config import load_config
from lockstep.runtime.loss import Term
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.session import Session, build_session
from lockstep.runtime.step import MicroBatch
from lockstep.runtime.streams import seed_rank_step
from lockstep.runtime.triage.history import History
from lockstep.runtime.triage.triage import Told, triage
from lockstep.runtime.world import World

Host = dict[str, Tensor]


class Twice(torch.autograd.Function):
    """A Function of the user's own, whose backward is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * math.inf


class Block(nn.Module):
    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        if self.case == "exp":
            h = torch.exp(h * 1e4)
        if self.case == "masked":
            # A row of nothing but -inf: softmax has no number for it. The mask itself is right.
            h = torch.softmax(h.masked_fill(torch.ones_like(h, dtype=torch.bool), -math.inf), 1)
        if self.case == "own function":
            h = Twice.apply(h)
        if self.case == "in place":
            h[0] = torch.log(h[0] * 0 - 1)
        return h


class Net(nn.Module):
    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case
        self.stem = nn.Linear(8, 8)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(8)
        self.block = Block(case)
        self.head = nn.Linear(8, 1)
        if case == "overflow":  # what follows makes it small again: only the number in between is too large for fp16
            with torch.no_grad():
                self.block.inner.weight.fill_(3e4)
                self.head.weight.fill_(1e-6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.block(self.norm(self.drop(self.act(self.stem(x)))))
        if self.case == "root":
            h = torch.sqrt(h.relu() * 0)
        return self.head(h).squeeze(1)


class Task(Recipe):
    """Least squares whose `case` says where it goes wrong, on all ranks or on `only`."""

    def __init__(self, case: str) -> None:
        self.case = case

    def model(self) -> nn.Module:
        return Net(self.case)

    def train_data(self) -> Dataset[Any]:
        return [hosts(0)[0][0] for _ in range(24)]  # type: ignore[return-value]

    def loss(self, model: nn.Module, batch: Host) -> Mapping[str, Term]:
        out = model(batch["x"])
        each = (out - batch["y"]).square()
        if self.case == "loss":
            each = torch.log(each * 0)
        if self.case == "raises" and _RAISES:
            raise ValueError("only now")
        return {"squares": Term(each.sum(), len(each))}


_RAISES: list[bool] = []


def hosts(rank: int, num_micro: int = 1) -> list[Any]:
    """Micro-batches of a rank, 6 samples each, and for a data set one sample."""
    generator = torch.Generator().manual_seed(rank)
    made = []
    for _ in range(num_micro):
        x, y = torch.randn(6, 8, generator=generator), torch.randn(6, generator=generator)
        made.append(({"x": x[0], "y": y[0]}, {"x": x, "y": y}))
    return made


@dataclass(frozen=True)
class Case:
    """What is wrong, where, and in which run."""

    case: str
    overrides: tuple[str, ...] = ()
    only: int | None = None  # the other ranks have the healthy network
    nan_in: str = ""
    micro: int = 1


def state_of(session: Session) -> dict[str, Any]:
    """Everything that a triage must leave alone, by value."""
    model, optimizer = session.model, session.step.optimizer
    return {
        "weights": [p.detach().clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "optimizer": [v.clone() for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)],
        "random": [torch.get_rng_state()],
        "scale": [torch.tensor(session.precision.scaler.get_scale())],
        "training": [torch.tensor(module.training) for module in model.modules()],
        "hooks": [torch.tensor(len(m._forward_hooks) + len(m._forward_pre_hooks)) for m in model.modules()],
    }


def same(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs, bit by bit."""
    return [name for name in before if not _equal(before[name], after[name])]


def _equal(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        (x is None and y is None) or (x is not None and y is not None and _bits(x) == _bits(y))
        for x, y in zip(a, b, strict=True)
    )


def _bits(value: Tensor) -> bytes:
    from lockstep.runtime.parallel.local import local

    return bytes(local(value).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def told(world: World, case: Case) -> tuple[Told, list[str], bool]:
    """One good step and one of the case; what the triage says, what it changed, whether the step was left out."""
    name = case.case if case.only in (None, world.rank) else "healthy"
    recipe = Task(case.case)
    base = ["recipe=tests/runtime/triage/nets.py:Task", "log.tensorboard=off", f"batch.global_batch={12 * case.micro}"]
    base += [f"batch.accumulation={case.micro}", "schedule.name=constant", "precision=fp32"]
    config = load_config(None, [*base, *case.overrides])
    session = build_session(recipe, config, world, None)
    for module in (session.model, session.model.block):
        module.case = name  # type: ignore[assignment, union-attr]
    recipe.case = name
    session.precision.scaler._init_scale = 2.0**30 if case.case == "large scale" else 2.0**4
    batches = [host for _, host in hosts(world.rank, case.micro)]
    if case.nan_in and name == case.case:
        batches[-1][case.nan_in][0] = math.nan
    if name == "large":
        batches[-1]["y"][0] = 1e30
    micro = [MicroBatch(host, session.on_device(host)) for host in batches]
    seed_rank_step(0, world.rank, 1)
    history = History()
    result = session.step.run(micro)
    history.add(1, session.precision.scaler.get_scale() * 2 if session.precision.scaler.is_enabled() else 1.0, result)
    before = state_of(session)
    _RAISES.append(True)
    try:
        said = triage(session, 1, micro, result, history)
    finally:
        _RAISES.clear()
    changed = same(before, state_of(session))
    session.replica.close()
    return said, changed, not result.updated
