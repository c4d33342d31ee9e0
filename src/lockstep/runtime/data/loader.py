"""DataLoaders for one rank: training micro-batches from a position on, and dealt evaluation batches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lockstep.core.errors import UserError, explain
from lockstep.runtime.data.broken import sound
from lockstep.runtime.data.iterable import SplitStream
from lockstep.runtime.data.sampler import EvalSampler, TrainSampler
from lockstep.runtime.data.samples import Collate, KeyedDataset
from lockstep.runtime.data.shield import shield
from lockstep.runtime.recipe import Batching
from lockstep.runtime.streams import seed_of
from lockstep.runtime.world import World, num_cores


@dataclass(frozen=True)
class Reading:
    """How a rank reads.

    Attributes:
        workers: worker processes of each rank; `auto` is none on a CPU, where the cores are the ranks' own.
        prefetch: batches that each worker reads ahead.
        seed: seed of the run.
    """

    workers: int | Literal["auto"] = "auto"
    prefetch: int = 2
    seed: int = 0

    def num_workers(self, world: World) -> int:
        """Worker processes of this rank."""
        if self.workers != "auto":
            return self.workers
        if world.device.type == "cpu":
            return 0
        return min(8, max(1, num_cores() // world.place.ranks_per_node - 1))


class TrainLoader:
    """This rank's training micro-batches, epoch by epoch, from any position.

    Args:
        dataset: the user's training set, map-style or iterable.
        recipe: a `Recipe`, or a `Batching` where there is none; gives `collate` and `labels`.
        reading: workers, prefetch and seed.
        world: the ranks.
        global_batch: samples of one optimizer step over all ranks.
        accumulation: micro-steps of a step.
        shuffle: a new order each epoch (map-style only).
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        recipe: Batching,
        reading: Reading,
        world: World,
        global_batch: int,
        accumulation: int = 1,
        shuffle: bool = True,
    ) -> None:
        deal = (global_batch, accumulation, reading.seed, world.rank, world.num_ranks)
        self.source: TrainSampler | SplitStream
        if isinstance(dataset, IterableDataset):
            self.length = None
            self.source = SplitStream(dataset, *deal)
            stream: Dataset[Any] = self.source
        else:
            self.length = sized(dataset, "train_data")
            self.source = TrainSampler(self.length, *deal, shuffle=shuffle)
            stream = KeyedDataset(dataset, reading.seed, "train")
        sampler = self.source if isinstance(self.source, TrainSampler) else None
        self._loader = _loader(stream, sampler, Collate(recipe, "train"), reading, world, "train")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Iterate the micro-batches of an epoch.

        Args:
            epoch: 0, 1, 2 ...
            start: samples of this epoch that all ranks together have consumed already.

        Raises:
            UserError: on `next`, for a label outside the classes, by rank, sample and value.
            RunError: on `next`, for a sample that cannot be read, by rank and sample.
        """
        self.source.epoch, self.source.start = epoch, start
        return iter(self._loader)


def eval_loader(
    dataset: Dataset[Any], recipe: Batching, reading: Reading, world: World, batch: int
) -> tuple[EvalSampler, DataLoader[Any]]:
    """This rank's share of the evaluation batches, and the sampler that numbers them."""
    sampler = EvalSampler(sized(dataset, "val_data"), batch, world.rank, world.num_ranks)
    stream = KeyedDataset(dataset, reading.seed, "val")
    return sampler, _loader(stream, sampler, Collate(recipe, "val"), reading, world, "val")


def sized(dataset: Dataset[Any], name: str) -> int:
    """The number of samples of a map-style data set.

    Raises:
        UserError: where it has no length or is empty.
    """
    try:
        length = len(cast(Any, dataset))
    except TypeError:
        seen = f"{name}() gave a {type(dataset).__name__} without a length"
        must = "a map-style data set has __len__ and __getitem__; a stream subclasses IterableDataset"
        raise UserError(explain(seen, must, "recipe")) from None
    if length == 0:
        raise UserError(
            explain(f"{name}() gave an empty data set", "at least one sample", "recipe", "check its path and filters")
        )
    return length


def _loader(
    stream: Dataset[Any],
    sampler: TrainSampler | EvalSampler | None,
    collate: Callable[[Any], Any],
    reading: Reading,
    world: World,
    name: str,
) -> DataLoader[Any]:
    workers = reading.num_workers(world)
    # An iterator draws its workers' base seed from its generator; without one of its own, from the global state.
    generator = torch.Generator().manual_seed(seed_of(reading.seed, "loader", name, world.rank))
    map_style = sampler is not None
    loader = _SoundLoader(
        stream,
        batch_sampler=sampler,
        batch_size=1 if map_style else None,
        num_workers=workers,
        collate_fn=collate,
        pin_memory=world.device.type == "cuda",
        generator=generator,
        prefetch_factor=reading.prefetch if workers else None,
        worker_init_fn=shield,
        # A stream takes its epoch from its attributes, which a persistent worker would never see change.
        persistent_workers=bool(workers) and map_style,
    )
    loader.rank = world.rank
    return loader


class _SoundLoader(DataLoader[Any]):
    """Raises what went wrong with a batch on the rank that asks for it."""

    rank = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch's own type has nothing that is used
        return map(partial(sound, rank=self.rank), super().__iter__())
