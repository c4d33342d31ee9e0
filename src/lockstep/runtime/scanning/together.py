"""What a recipe's collate makes of one sample, and of two that differ."""

from typing import Any

from torch import Tensor

from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.build import batch_kind
from lockstep.runtime.scanning.telling import told


def batch_of_one(sample: Any) -> Any:
    """What torch's `default_collate` makes of one sample, without a copy of its tensors."""
    from torch.utils.data._utils.collate import collate, default_collate_fn_map

    def viewed(batch: list[Tensor], *, collate_fn_map: object = None) -> Tensor:
        return batch[0][None]

    return collate([sample], collate_fn_map={**default_collate_fn_map, Tensor: viewed})


def why_not_together(recipe: Batching, usual: Any, other: Any) -> str | None:
    """Why two samples of different build cannot be in one batch; None where the recipe's collate takes both.

    A collate that takes them gives a batch of the same kind whatever it is made of: of each by itself, and of both
    in either order. Stacking, for one, does not: two bytes and a float become floats, and two bytes alone do not.
    """
    try:
        wanted = batch_kind(recipe.collate([usual, usual]))
        for samples in ([other, other], [usual, other], [other, usual]):
            if batch_kind(recipe.collate(samples)) != wanted:
                return "collate makes another kind of batch of it"
    except Exception as error:
        return f"collate raised {told(error)}"
    return None
