"""One optimizer step over all ranks: counts, forward, backward, agreement, clipping, update, schedule."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.runtime.counting import Counting, gradients
from lockstep.runtime.loss import total_loss
from lockstep.runtime.optim import Schedule
from lockstep.runtime.parallel.local import local
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.undo import BufferUndo
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
        stop: whether any rank was asked to stop; the same on every rank.
    """

    sums: Mapping[str, Tensor]
    counts: Mapping[str, float]
    weights: Mapping[str, float]
    grad_norm: float
    updated: bool
    unused: frozenset[str]
    lr: float
    comm_s: float
    stop: bool = False


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
        counting: how the counts reach all ranks.
        stop_asked: whether this rank was asked to stop. The answer travels with the gradients, or with the counts.
    """

    def __init__(
        self,
        world: World,
        recipe: Recipe,
        replica: Wrapped,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        precision: Precision,
        clip_norm: float | None,
        counting: Counting,
        stop_asked: Callable[[], bool] | None = None,
    ) -> None:
        self.world, self.recipe, self.replica, self.optimizer = world, recipe, replica, optimizer
        self.schedule, self.precision, self.clip_norm = schedule, precision, clip_norm
        self.counting = counting
        self.stop_asked = stop_asked or _never
        self._buffers = BufferUndo(replica.model)
        self.params: list[nn.Parameter] = [p for group in optimizer.param_groups for p in group["params"]]

    def run(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """One step over this rank's micro-batches; every rank calls it with the same number of them."""
        self.optimizer.zero_grad(set_to_none=True)
        self._buffers.keep()
        hosts = [micro.host for micro in micro_batches]
        counts = self.counting.start(self.recipe, hosts, self.world, self.stop_asked())
        sums: dict[str, Tensor] = {}
        carried = 0
        for i, micro in enumerate(micro_batches):
            last = i == len(micro_batches) - 1
            with nullcontext() if last else self.replica.accumulating():
                with self.precision.autocast():
                    terms = self.replica.forward(micro.batch)
                loss = total_loss(terms, counts.totals(terms), self.world.num_ranks)
                scaled = self.precision.scaler.scale(loss)
                carried = self.replica.backward(scaled, last, counts.carried(), last and self.stop_asked())
            for name, term in terms.items():
                value = term.sum.detach().double()
                sums[name] = sums[name] + value if name in sums else value
        grads = gradients(self.params)
        totals = counts.settle(carried, grads)
        norm, finite, lr = self._update(grads)
        if not finite:
            self._buffers.undo()
        weights = {name: term.weight for name, term in terms.items()}
        stop = self.replica.stop if self.replica.carries else counts.stop
        return StepResult(sums, totals, weights, norm, finite, self.replica.unused, lr, counts.waited_s, stop)

    def _update(self, grads: list[Tensor]) -> tuple[float, bool, float]:
        """Clip and update; the gradient's norm, whether the weights were changed, the learning rate."""
        scaler, lr = self.precision.scaler, float(self.optimizer.param_groups[0]["lr"])
        if not grads:
            self.schedule.step()
            return 0.0, True, lr
        scaler.unscale_(self.optimizer)
        norm_tensor = self.replica.norm(self.params)
        norm = float(norm_tensor)
        # Every rank has the same reduced gradients, so every rank decides the same.
        finite = math.isfinite(norm)
        if self.clip_norm is not None and finite:
            shorten(gradients(self.params), self.clip_norm, norm_tensor)
        # Not left to the scaler alone: a norm overflows before its elements do.
        if finite:
            scaler.step(self.optimizer)
            self.schedule.step()
        scaler.update()
        return norm, finite, lr


def shorten(grads: Sequence[Tensor], longest: float, norm: Tensor) -> None:
    """Scale a gradient down to a norm, in the arithmetic of `torch.nn.utils.clip_grads_with_norm_`; shards too.

    Args:
        grads: its parts.
        longest: the norm that it may have.
        norm: scalar, the one that it has over all ranks.
    """
    if grads:
        factor = torch.clamp(longest / (norm + 1e-6), max=1.0)
        own = [local(grad) for grad in grads]
        torch._foreach_mul_(own, factor.to(own[0].device, own[0].dtype))


def _never() -> bool:
    return False
