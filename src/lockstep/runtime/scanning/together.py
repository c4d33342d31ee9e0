"""What a recipe's collate makes of one sample, and of two that differ."""

from typing import Any

import torch
from torch import Tensor

from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.build import batch_kind
from lockstep.runtime.scanning.telling import told

_LONG = 64


def batch_of_one(sample: Any) -> Any:
    """What torch's `default_collate` makes of one sample, without a copy of its tensors.

    A long list of numbers becomes a list of tensors at once, not number by number.
    """
    from torch.utils.data._utils.collate import collate, default_collate_fn_map

    def viewed(batch: list[Tensor], *, collate_fn_map: object = None) -> Tensor:
        return batch[0][None]

    def listed(batch: list[list[Any]], *, collate_fn_map: object = None) -> list[Any]:
        (values,) = batch
        if len(values) > _LONG and set(map(type, values)) in ({int}, {float}):
            dtype = torch.int64 if type(values[0]) is int else torch.float64
            return list(torch.tensor(values, dtype=dtype)[:, None])
        return [collate([value], collate_fn_map=known) for value in values]

    known: dict[Any, Any] = {**default_collate_fn_map, Tensor: viewed, list: listed}
    return collate([sample], collate_fn_map=known)


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
    except BaseException as error:  # whatever it is, it is the recipe's
        return f"collate raised {told(error)}"
    return None
