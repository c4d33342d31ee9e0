"""A loss is a sum and a count, so that its mean is over all ranks and all micro-batches, never a mean of means."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from lockstep.core.errors import UserError, explain
from lockstep.runtime.world import World

Count = Tensor | int | float


class Term(NamedTuple):
    """One term of a loss over the samples at hand.

    Attributes:
        sum: scalar, the summed loss of every counted element, part of the autograd graph.
        count: how many elements were summed (valid pixels, tokens, samples); an int, a float or a scalar tensor.
        weight: factor of this term in the total loss.
    """

    sum: Tensor
    count: Count  # type: ignore[assignment]  # hides a method of tuple that nobody calls here
    weight: float = 1.0


Terms = Mapping[str, Term]


def masked_term(per_element: Tensor, valid: Tensor, weight: float = 1.0) -> Term:
    """The term of a loss whose elements count only where `valid` holds.

    Args:
        per_element: any shape, the loss of each element.
        valid: the same shape, bool.
        weight: factor of this term in the total loss.
    """
    return Term(torch.where(valid, per_element, 0).sum(), valid.sum(), weight)


def checked_terms(terms: object, recipe: str) -> dict[str, Term]:
    """The terms of a recipe's loss.

    Raises:
        UserError: where they are not a mapping of names to (scalar sum, count).
    """
    must = 'a mapping such as {"loss": Term(sum, count)} with a scalar sum'
    if not isinstance(terms, Mapping) or not terms:
        raise UserError(explain(f"{recipe}.loss returned {type(terms).__name__}", must))
    checked = {}
    for name, term in terms.items():
        parts = tuple(term) if isinstance(term, tuple) else ()
        if not (2 <= len(parts) <= 3 and isinstance(parts[0], Tensor) and parts[0].dim() == 0):
            raise UserError(explain(f"{recipe}.loss returned {type(term).__name__} for {name!r}", must))
        term = Term(*parts)
        # A count may come out of the model; nothing is learnt through it, and its number is read.
        checked[str(name)] = term._replace(count=term.count.detach()) if isinstance(term.count, Tensor) else term
    return checked


def total_loss(terms: Mapping[str, Term], totals: Mapping[str, float | Tensor], num_ranks: int) -> Tensor:
    """This rank's share of the loss, scaled so that the wrapper's average over the ranks is the mean over all.

    Args:
        terms: this rank's sums over one micro-batch.
        totals: the count of each term over all ranks and micro-steps of the optimizer step; 0 / 0 is 0.
        num_ranks: what the wrapper divides by.

    Returns:
        A scalar. Where a sum is not finite it makes every gradient not finite, so that all ranks see it.
    """
    return torch.stack([_share(term, totals[name], num_ranks) for name, term in terms.items()]).sum()


def _share(term: Term, total: float | Tensor, num_ranks: int) -> Tensor:
    # One over a count of pixels is too small for fp16, and rounded to three digits in bf16.
    value = term.sum.float() if term.sum.dtype in (torch.float16, torch.bfloat16) else term.sum
    if isinstance(total, Tensor):
        scale: float | Tensor = torch.where(total > 0, term.weight * num_ranks / total, 0).to(value.dtype)
    else:
        scale = term.weight * num_ranks / total if total > 0 else 0.0
    # A loss of inf may have finite gradients; 0 * inf is nan, and nan times a gradient is nan.
    return value * (scale + 0 * value.detach())


class CountSum:
    """The counts of one optimizer step on their way to the sum over all ranks.

    Args:
        counts: this rank's count of each term over the micro-steps of the step; every rank has the same names.
        world: the ranks.
    """

    def __init__(self, counts: Mapping[str, float], world: World) -> None:
        self.names = sorted(counts)
        self._values = torch.tensor([counts[name] for name in self.names], dtype=torch.float64)
        self._work = world.start_sum(self._values)

    def wait(self) -> dict[str, float]:
        """The counts over all ranks, by name."""
        self._work.wait()
        return dict(zip(self.names, self._values.tolist(), strict=True))
