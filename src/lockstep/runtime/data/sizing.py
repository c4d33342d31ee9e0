"""How large each sample is, and what that decides: the steps of an epoch, and its order."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset

from lockstep.core.errors import UserError, explain
from lockstep.runtime.config import BatchConfig, DataConfig
from lockstep.runtime.data.packing import PackedPlan
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World


@dataclass(frozen=True, eq=False)
class Sizing:
    """The sizes of a training set and what they are used for.

    Attributes:
        sizes: (length,) int64, targets of each sample, by index.
        global_targets: most targets of an optimizer step over all ranks; None where samples are counted.
        micro_targets: most padded targets of one rank in one forward; None for no limit.
        bucket: samples of like size that follow one another; None for an order that sizes have no part in.
    """

    sizes: NDArray[np.int64]
    global_targets: int | None = None
    micro_targets: int | None = None
    bucket: int | None = None

    @staticmethod
    def of(recipe: Recipe, dataset: Dataset[Any], batch: BatchConfig, data: DataConfig) -> "Sizing | None":
        """What the sections `batch` and `data` ask for; None where they need no sizes.

        Raises:
            UserError: where sizes are needed and the recipe does not tell them, or tells what cannot be.
        """
        if batch.global_targets is None and data.bucket is None:
            return None
        asked = "data.bucket" if batch.global_targets is None else "batch.global_targets"
        if isinstance(dataset, IterableDataset):
            must = "a map-style training set: a stream does not tell the sizes of what is to come"
            raise UserError(explain(f"{asked} for a stream", must, next_step="batch.global_batch=N, data.bucket=null"))
        sizes = recipe.sizes(dataset)
        if sizes is None:
            must = "sizes(data) of the recipe gives the targets of each training sample"
            seen = f"{asked} is set, and {type(recipe).__name__} tells no sizes"
            raise UserError(explain(seen, must, "recipe", "write sizes(data), or count samples: batch.global_batch=N"))
        checked = _checked(sizes, sized(dataset, "train_data"))
        return Sizing(checked, batch.global_targets, batch.micro_targets, data.bucket)

    def check(self, world: World) -> None:
        """Compare the sizes over the ranks, and with what a step and a forward may hold. All ranks call it together.

        Raises:
            UserError: where ranks see other sizes, or a sample is too large.
        """
        index = int(self.sizes.argmax())
        largest, mine = int(self.sizes[index]), (len(self.sizes), digest(self.sizes))
        if len(set(world.gather(mine))) > 1:
            must, next_step = "every rank sees the same data set", "sort the files, and split them with a fixed seed"
            raise UserError(explain("sizes(data) differs between the ranks", must, "recipe", next_step))
        if self.micro_targets is not None and largest > self.micro_targets:
            seen = f"sample {index} has {largest} targets, and batch.micro_targets is {self.micro_targets}"
            next_step = f"batch.micro_targets={2 * largest}, or cut or leave out large samples in train_data()"
            raise UserError(explain(seen, "a forward holds at least the largest sample", next_step=next_step))
        if self.global_targets is not None and largest * world.num_ranks > self.global_targets:
            seen = f"sample {index} has {largest} targets, and batch.global_targets={self.global_targets} is for "
            must = "a step holds the largest sample once for each rank, so that none goes without"
            next_step = f"batch.global_targets={largest * world.num_ranks} or more, or cut or leave out large samples"
            raise UserError(explain(f"{seen}{world.num_ranks} ranks", must, next_step=next_step))

    def plan(self, order: NDArray[np.int64], start: int, num_ranks: int) -> PackedPlan:
        """The steps of an epoch from a position on, counted in targets."""
        assert self.global_targets is not None
        return PackedPlan(self.sizes[order], start, self.global_targets, self.micro_targets, num_ranks)


def sized(dataset: Dataset[Any], name: str) -> int:
    """The number of samples of a map-style data set.

    Raises:
        UserError: where it has no length, one that cannot be, or is empty.
    """
    try:
        length = len(cast(Any, dataset))
    except Exception as error:
        if hasattr(type(dataset), "__len__"):
            seen = f"len() of the data set that {name}() gave raised {type(error).__name__}: {error}"
            must = "__len__ gives the number of samples, a whole number that is not negative"
            raise UserError(explain(seen, must, "recipe")) from error
        if not isinstance(error, TypeError):
            raise
        seen = f"{name}() gave a {type(dataset).__name__} without a length"
        must = "a map-style data set has __len__ and __getitem__; a stream subclasses IterableDataset"
        raise UserError(explain(seen, must, "recipe")) from None
    if length == 0:
        raise empty(name)
    return length


def empty(name: str) -> UserError:
    """The error for a data set without a sample, by the name of the recipe's method that gave it."""
    seen = f"{name}() gave an empty data set"
    return UserError(explain(seen, "at least one sample", "recipe", "check its path and filters"))


def _checked(sizes: Sequence[int], length: int) -> NDArray[np.int64]:
    """The sizes as an array; a sample without a target counts as one, since it takes its place in a batch."""
    must = "one whole number, 0 or more, for each sample in the order of the data set"
    try:
        found = np.asarray(sizes)
    except ValueError:
        raise UserError(explain("sizes(data) gave lists of different lengths", must, "recipe")) from None
    if found.shape != (length,):
        number = len(found) if found.ndim == 1 else f"an array of shape {found.shape} as"
        raise UserError(explain(f"sizes(data) gave {number} sizes for {length} samples", must, "recipe"))
    if found.dtype.kind not in "iu":
        raise UserError(explain(f"sizes(data) gave sizes of type {found.dtype}", must, "recipe"))
    if found.min() < 0:
        index = int(found.argmin())
        raise UserError(explain(f"sizes(data) gave {found[index]} for sample {index}", must, "recipe"))
    if found.max() > np.iinfo(np.int64).max // max(1, length):
        index = int(found.argmax())
        raise UserError(
            explain(f"sizes(data) gave {found[index]} for sample {index}", "targets that can be added up", "recipe")
        )
    return np.maximum(found.astype(np.int64), 1)


def digest(sizes: NDArray[np.int64]) -> str:
    """A short name of all sizes in their order."""
    return blake2b(sizes.tobytes(), digest_size=8).hexdigest()
