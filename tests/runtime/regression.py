"""A recipe of one linear layer whose batches say themselves what goes wrong in them."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.runtime.config import load_config
from lockstep.runtime.loss import Count, Term, masked_term
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.session import Session, build_session
from lockstep.runtime.step import MicroBatch, StepResult
from lockstep.runtime.world import World

# What a sample does to its own loss: a key of the batch.
FINE, NAN, INF, STEEP, LARGE = range(5)
DROPPED = -1  # its element is not counted

Host = dict[str, Tensor]


def samples(values: list[int], seed: int = 0) -> Host:
    """A batch with one sample for each of the given kinds."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(len(values), 3, generator=generator), torch.randn(len(values), generator=generator)
    return {"x": x, "y": y, "kind": torch.tensor(values, dtype=torch.int64)}


class Points(Dataset[Host]):
    def __init__(self, length: int, bad: Mapping[int, int]) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Host:
        return {name: value[0] for name, value in samples([self.bad.get(index, FINE)], index).items()}


class Regression(Recipe):
    """Least squares.

    Args:
        terms: 1, or 2 with a second term over the positive targets at weight 0.5.
        counts: `whole` numbers, `known` from the batch, or `late` and fractional.
    """

    def __init__(
        self, terms: int = 1, counts: str = "whole", length: int = 24, bad: Mapping[int, int] | None = None
    ) -> None:
        self.terms, self.kind, self.length, self.bad = terms, counts, length, bad or {}

    def model(self) -> nn.Module:
        return nn.Linear(3, 1)

    def train_data(self) -> Dataset[Host]:
        return Points(self.length, self.bad)

    def masks(self, batch: Host) -> dict[str, Tensor]:
        valid = batch["kind"] != DROPPED
        return dict(list({"squares": valid, "positive": valid & (batch["y"] > 0)}.items())[: self.terms])

    def counts(self, batch: Host) -> Mapping[str, Count] | None:
        return {name: mask.sum() for name, mask in self.masks(batch).items()} if self.kind == "known" else None

    def loss(self, model: nn.Module, batch: Host) -> Mapping[str, Term]:
        out, kind = model(batch["x"]).squeeze(1), batch["kind"]
        factor = torch.ones_like(out, requires_grad=False)
        for value, number in ((NAN, math.nan), (INF, math.inf), (LARGE, 1e25)):
            factor[kind == value] = number
        # The root has the value 0 and no finite slope.
        steep = kind == STEEP
        root = (out[steep] - out[steep].detach()).abs().sqrt()
        each = (out - batch["y"]).square() * factor + torch.zeros_like(out).index_put((steep,), root)
        masks = self.masks(batch)
        terms = {name: masked_term(each, mask, 1.0 if name == "squares" else 0.5) for name, mask in masks.items()}
        if self.kind == "late":
            return {name: term._replace(count=term.count * 1.5) for name, term in terms.items()}
        return terms


def session_of(recipe: Recipe, world: World, *overrides: str) -> Session:
    base = ["recipe=tests/runtime/regression.py:Regression", "log.tensorboard=off", "batch.global_batch=12"]
    return build_session(recipe, load_config(None, [*base, *overrides]), world, None)


def step_of(session: Session, hosts: list[Host]) -> StepResult:
    """One step over this rank's micro-batches."""
    return session.step.run([MicroBatch(host, session.on_device(host)) for host in hosts])


def gradients_of(session: Session) -> Tensor:
    return torch.cat([p.grad.flatten().clone() for p in session.step.params if p.grad is not None])


def weights_of(session: Session) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in session.model.parameters()])
