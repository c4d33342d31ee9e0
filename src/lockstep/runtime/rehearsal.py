"""One forward and backward before step 0 of every start, which leaves no trace but what must be settled by then.

DistributedDataParallel lays its buckets out anew after the first backward. A resumed run whose first real step still
had the old layout would add the ranks' gradients in another order than the unbroken run did (at N >= 3 the sums differ
in their last bits). After a rehearsal in every start the layout is the final one. Random state and buffers are put
back.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.loss import Count, Term, total_loss
from lockstep.runtime.parallel.replica import Replica
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.streams import preserved, seed_everything
from lockstep.runtime.world import World


def rehearse(
    replica: Replica, recipe: Recipe, precision: Precision, host: Any, batch: Any, world: World
) -> frozenset[str]:
    """Run the rehearsal; returns the parameters that had no gradient on some rank.

    Args:
        replica: the wrapped model.
        recipe: its `counts` are compared with the counts that its loss returns.
        precision: the format of the forward.
        host: a micro-batch of this rank, the same in every start.
        batch: the same on the device.
        world: the ranks.
    """
    model = replica.model
    kept = [buffer.detach().clone() for buffer in model.buffers()]
    with preserved():
        seed_everything(world.rank)
        with precision.autocast():
            terms = replica.forward(batch)
        check_counts(recipe.counts(host), terms)
        totals = {name: float(term.count) for name, term in terms.items()}
        replica.backward(total_loss(terms, totals, world.num_ranks), last=True)
    _settle(model, kept)
    return replica.completion.unused if replica.completion else frozenset()


def _settle(model: nn.Module, kept: list[Tensor]) -> None:
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), kept, strict=True):
            buffer.copy_(value)
    for param in model.parameters():
        param.grad = None


def check_counts(counts: Mapping[str, Count] | None, terms: Mapping[str, Term]) -> None:
    """Compare what `counts(batch)` promises with what `loss` returned.

    Raises:
        UserError: where they differ, for the mean would be wrong.
    """
    if counts is None:
        return
    promised = {name: float(count) for name, count in counts.items()}
    returned = {name: float(term.count) for name, term in terms.items()}
    if promised != returned:
        seen = f"counts(batch) says {promised}, loss(model, batch) returned counts {returned}"
        raise UserError(explain(seen, "the same names and numbers", "recipe", "mend counts, or leave it out"))
