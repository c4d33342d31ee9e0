"""One forward and backward before step 0 of every start, which leaves no trace but what must be settled by then.

DistributedDataParallel lays its buckets out anew after the first backward. A resumed run whose first real step still
had the old layout would add the ranks' gradients in another order than the unbroken run did (at N >= 3 the sums differ
in their last bits). After a rehearsal in every start the layout is the final one. Random state and buffers are put
back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lockstep.core.errors import UserError, explain
from lockstep.runtime.counting import Counting
from lockstep.runtime.loss import Count, Term, total_loss
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.streams import preserved, seed_everything
from lockstep.runtime.undo import BufferUndo
from lockstep.runtime.world import World


@dataclass(frozen=True)
class Rehearsal:
    """What the rehearsal found.

    Attributes:
        counting: how the counts of the loss reach all ranks.
        unused: parameters that had no gradient on some rank.
    """

    counting: Counting
    unused: frozenset[str]


def rehearse(
    replica: Wrapped, recipe: Recipe, precision: Precision, host: Any, batch: Any, micro: int, world: World
) -> Rehearsal:
    """Run the rehearsal. All ranks call it together.

    Args:
        replica: the wrapped model.
        recipe: its `counts` are compared with the counts that its loss returns.
        precision: the format of the forward.
        host: a micro-batch of this rank, the same in every start.
        batch: the same on the device.
        micro: micro-steps of a full step.
        world: the ranks.
    """
    model = replica.model
    buffers = BufferUndo(model)
    buffers.keep()
    with preserved():
        seed_everything(world.rank)
        with precision.autocast():
            terms = replica.forward(batch)
        known = recipe.counts(host)
        check_counts(known, terms)
        counting = Counting.of(terms, known, replica.carries, micro, world)
        totals = {name: float(term.count) for name, term in terms.items()}
        loss = total_loss(terms, totals, world.num_ranks)
        check_graph(loss, totals)
        replica.backward(loss, last=True)
    buffers.undo()
    for param in model.parameters():
        param.grad = None
    return Rehearsal(counting, replica.unused)


def check_graph(loss: Tensor, totals: Mapping[str, float]) -> None:
    """A share without counted elements may give a constant; with some, the loss must come from the model.

    Raises:
        UserError: where no parameter could get a gradient.
    """
    if not loss.requires_grad and any(totals.values()):
        seen = f"the loss ({', '.join(totals)}) does not depend on any trainable parameter"
        must = "a sum computed by the model, without detach() or no_grad()"
        raise UserError(explain(seen, must, "recipe.loss(), or a model without requires_grad=True"))


def check_counts(counts: Mapping[str, Count] | None, terms: Mapping[str, Term]) -> None:
    """Compare what `counts(batch)` promises with what `loss` returned.

    Raises:
        UserError: where they differ, for the mean would be wrong.
    """
    if counts is None:
        return
    promised = {name: float(count) for name, count in counts.items()}
    returned = {name: float(term.count) for name, term in terms.items()}
    # The same count summed in another order or type differs in its last digits.
    if promised.keys() != returned.keys() or not all(
        math.isclose(count, returned[name], rel_tol=1e-4) for name, count in promised.items()
    ):
        seen = f"counts(batch) says {promised}, loss(model, batch) returned counts {returned}"
        raise UserError(explain(seen, "the same names and numbers", "recipe", "mend counts, or leave it out"))
