"""One optimizer step over all ranks: counts, forward, backward, agreement, clipping, update, schedule."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.loss import CountSum, Term, total_loss
from lockstep.runtime.optim import Schedule
from lockstep.runtime.parallel.replica import Replica
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of this rank, on the host and on the device."""

    host: Any
    batch: Any


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did.

    Attributes:
        sums: this rank's loss sum of each term, on the device.
        counts: the count of each term over all ranks.
        weights: the weight of each term.
        grad_norm: norm of the whole gradient before clipping; not finite where the step was skipped.
        updated: whether the weights were changed; the same on every rank.
        unused: parameters that had no gradient on some rank.
        lr: learning rate of the step.
        comm_s: seconds that this rank waited for the counts.
    """

    sums: Mapping[str, Tensor]
    counts: Mapping[str, float]
    weights: Mapping[str, float]
    grad_norm: float
    updated: bool
    unused: frozenset[str]
    lr: float
    comm_s: float


class TrainStep:
    """Runs optimizer steps.

    Args:
        world: the ranks.
        recipe: gives `counts`.
        replica: the wrapped model.
        optimizer: over the model's parameters.
        schedule: stepped once for each update.
        precision: format and scaler.
        clip_norm: largest norm of the whole gradient, None for no clipping.
    """

    def __init__(
        self,
        world: World,
        recipe: Recipe,
        replica: Replica,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        precision: Precision,
        clip_norm: float | None,
    ) -> None:
        self.world, self.recipe, self.replica, self.optimizer = world, recipe, replica, optimizer
        self.schedule, self.precision, self.clip_norm = schedule, precision, clip_norm
        self.params: list[nn.Parameter] = [p for group in optimizer.param_groups for p in group["params"]]

    def run(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """One step over this rank's micro-batches; every rank calls it with the same number of them."""
        self.optimizer.zero_grad(set_to_none=True)
        early = self._early_counts(micro_batches)
        tally = _Tally(self.world, len(micro_batches))
        if early is not None:
            tally.coming = CountSum(early, self.world)
        for i, micro in enumerate(micro_batches):
            last = i == len(micro_batches) - 1
            with nullcontext() if last else self.replica.accumulating():
                with self.precision.autocast():
                    terms = self.replica.forward(micro.batch)
                loss = total_loss(terms, tally.totals(terms), self.world.num_ranks)
                self.replica.backward(self.precision.scaler.scale(loss), last)
            tally.add(terms)
        if tally.deferred is not None:
            tally.normalise(self.params)
        return self._update(tally)

    def _early_counts(self, micro_batches: Sequence[MicroBatch]) -> dict[str, float] | None:
        """The counts of all micro-batches, where the batches alone tell them."""
        sums: dict[str, float] = {}
        for micro in micro_batches:
            counts = self.recipe.counts(micro.host)
            if counts is None:
                return None
            for name, count in counts.items():
                sums[name] = sums.get(name, 0.0) + float(count)
        return sums

    def _update(self, tally: "_Tally") -> StepResult:
        scaler, lr = self.precision.scaler, float(self.optimizer.param_groups[0]["lr"])
        scaler.unscale_(self.optimizer)
        grads = [p.grad for p in self.params if p.grad is not None]
        norm_tensor = nn.utils.get_total_norm(grads)
        norm = float(norm_tensor)
        # Every rank has the same reduced gradients, so every rank decides the same.
        finite = math.isfinite(norm)
        if self.clip_norm is not None and finite:
            nn.utils.clip_grads_with_norm_(self.params, self.clip_norm, norm_tensor)
        if scaler.is_enabled():
            scaler.step(self.optimizer)
            scaler.update()
        elif finite:
            self.optimizer.step()
        if finite:
            self.schedule.step()
        unused = self.replica.completion.unused if self.replica.completion else frozenset()
        return StepResult(tally.sums, tally.counts(), tally.weights, norm, finite, unused, lr, tally.comm_s)


class _Tally:
    """Sums and counts of one step as its micro-steps go by."""

    def __init__(self, world: World, num_micro: int) -> None:
        self.world, self.num_micro = world, num_micro
        self.coming: CountSum | None = None
        self.sums: dict[str, Tensor] = {}
        self.weights: dict[str, float] = {}
        self.deferred: float | None = None
        self.comm_s = 0.0
        self._totals: dict[str, float] | None = None
        self._late: dict[str, float] = {}

    def totals(self, terms: Mapping[str, Term]) -> dict[str, float]:
        """What each term is divided by, for the backward of this micro-step."""
        if self._totals is None and (self.coming is not None or self.num_micro == 1):
            start = time.perf_counter()
            coming = self.coming or CountSum({name: float(term.count) for name, term in terms.items()}, self.world)
            self._totals = coming.wait()
            self.comm_s += time.perf_counter() - start
        if self._totals is not None:
            self._expect(terms, self._totals)
            return self._totals
        return self._provisional(terms)

    def _provisional(self, terms: Mapping[str, Term]) -> dict[str, float]:
        """With counts known only after the last forward, one term is divided by a stand-in until then."""
        if len(terms) > 1:
            seen = f"a loss of {len(terms)} terms with {self.num_micro} micro-steps and no counts(batch)"
            must = "with accumulation and several terms, the recipe tells each count from the batch"
            raise UserError(explain(seen, must, "recipe", "write counts(batch), or use one term"))
        name, term = next(iter(terms.items()))
        self._late[name] = self._late.get(name, 0.0) + float(term.count)
        self.deferred = float(self.num_micro * self.world.num_ranks)
        return {name: self.deferred}

    def normalise(self, params: Sequence[nn.Parameter]) -> None:
        """Put the count of all ranks in place of the stand-in."""
        assert self.deferred is not None
        self._totals = CountSum(self._late, self.world).wait()
        (total,) = self._totals.values()
        factor = self.deferred / total if total > 0 else 0.0
        grads = [p.grad for p in params if p.grad is not None]
        torch._foreach_mul_(grads, factor)

    def _expect(self, terms: Mapping[str, Term], totals: Mapping[str, float]) -> None:
        if terms.keys() != totals.keys():
            seen = f"loss has the terms {sorted(terms)}, counts has {sorted(totals)}"
            raise UserError(explain(seen, "the same names in every step", "recipe.loss and recipe.counts"))

    def add(self, terms: Mapping[str, Term]) -> None:
        """Add the sums of one micro-step."""
        for name, term in terms.items():
            value = term.sum.detach().double()
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.weights[name] = term.weight

    def counts(self) -> dict[str, float]:
        """The counts over all ranks."""
        assert self._totals is not None
        return self._totals
