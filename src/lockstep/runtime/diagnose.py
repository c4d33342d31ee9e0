"""Which samples of which rank made a step not finite. Run by all ranks together, only after it has happened."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lockstep.runtime.data.broken import Broken
from lockstep.runtime.data.sampler import Key
from lockstep.runtime.loss import checked_terms
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World


@dataclass(frozen=True)
class Culprit:
    """A sample whose own loss or gradient is not finite.

    Attributes:
        index: index in the training set.
        what: `loss is nan` or `gradient is inf`.
    """

    index: int
    what: str


def find_culprits(
    model: nn.Module, recipe: Recipe, read: Callable[[list[Key]], Any], keys: Sequence[Key], precision: Precision
) -> list[Culprit]:
    """Look at this rank's samples of the step one by one, in evaluation mode.

    Args:
        model: the unwrapped model.
        recipe: gives the loss.
        read: makes a device batch of the given keys.
        keys: the samples that this rank read in the step.
        precision: the format of the forward.
    """
    training = model.training
    model.eval()
    try:
        looks = [(key[1], _look(model, recipe, read([key]), precision)) for key in keys]
    finally:
        model.train(training)
    return [Culprit(index, what) for index, what in looks if what]


def _look(model: nn.Module, recipe: Recipe, batch: Any, precision: Precision) -> str:
    """What is wrong with one sample by itself; empty where nothing is, or where it cannot be told."""
    if isinstance(batch, Broken):
        return ""
    try:
        with precision.autocast():
            terms = checked_terms(recipe.loss(model, batch), type(recipe).__name__)
    except Exception as error:
        # A loss may need more than one sample. The report of the step must not be lost for it, nor the others wait.
        return f"loss cannot be computed alone ({type(error).__name__}: {error})"
    value = sum(float(term.sum.detach()) for term in terms.values())
    if not math.isfinite(value):
        return f"loss is {value}"
    total = torch.stack([term.sum for term in terms.values()]).sum()
    if not total.requires_grad:
        return ""
    params = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(total, params, allow_unused=True)
    norm = float(nn.utils.get_total_norm([g for g in grads if g is not None]))
    return "" if math.isfinite(norm) else f"gradient is {norm}"


def report(world: World, step: int, keys: Sequence[Key], local: list[Culprit], looked: bool = True) -> str:
    """What all ranks found, in words. Where nobody `looked` at single samples, those that the step read."""
    by_rank = world.gather((local, [key[1] for key in keys]))
    lines = []
    for rank, (culprits, indices) in enumerate(by_rank):
        if len(culprits) > 1 and len(culprits) == len(indices):
            kinds = ", ".join(sorted({culprit.what for culprit in culprits}))
            lines.append(f"rank {rank}: each of its {len(indices)} samples by itself: {kinds}")
            continue
        for culprit in culprits[:8]:
            lines.append(f"rank {rank}: sample {culprit.index}, its {culprit.what}")
        if len(culprits) > 8:
            lines.append(f"rank {rank}: and {len(culprits) - 8} more samples")
        if not culprits and not any(found for found, _ in by_rank):
            shown = ", ".join(map(str, indices[:16])) + (" ..." if len(indices) > 16 else "")
            lines.append(f"rank {rank}: {'no sample by itself; ' * looked}the step read {shown}")
    return f"step {step}: loss or gradient is not finite\n  " + "\n  ".join(lines)
