"""DataLoaders for one rank: training micro-batches from a position on, and dealt evaluation batches."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lockstep.runtime.data.broken import sound
from lockstep.runtime.data.iterable import SplitStream
from lockstep.runtime.data.sampler import EvalSampler, TrainSampler
from lockstep.runtime.data.samples import Collate, KeyedDataset
from lockstep.runtime.data.shield import shield
from lockstep.runtime.data.sizing import Sizing, sized
from lockstep.runtime.data.stateful import Stated, StreamState
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
        sizing: how large the samples are, where the steps or the order depend on it (map-style only).
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
        sizing: Sizing | None = None,
    ) -> None:
        deal = (global_batch, accumulation, reading.seed, world.rank, world.num_ranks)
        self.source: TrainSampler | SplitStream
        if isinstance(dataset, IterableDataset):
            self.length = None
            self.source = SplitStream(dataset, *deal)
            stream: Dataset[Any] = self.source
        else:
            self.length = sized(dataset, "train_data")
            self.source = TrainSampler(self.length, *deal, shuffle=shuffle, sizing=sizing)
            stream = KeyedDataset(dataset, reading.seed, "train")
        sampler = self.source if isinstance(self.source, TrainSampler) else None
        self._states: deque[tuple[int, StreamState]] = deque()
        self._newest: StreamState | None = None
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
        if isinstance(self.source, SplitStream) and self.source.keeps_state:
            return self._keeping(iter(self._loader))
        return iter(self._loader)

    def _keeping(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, without the states that travel with them."""
        self._states.clear()
        self._newest = None
        for number, batch in enumerate(batches, 1):
            if isinstance(batch, Stated):
                self._states.append((number, batch.after))
                batch = batch.batch
            yield batch

    def stream_state(self, consumed: int) -> StreamState | None:
        """The newest state of a stream, None where there is none.

        Args:
            consumed: micro-batches of this epoch that the training has consumed; those that were read ahead of it do
                not count.
        """
        while self._states and self._states[0][0] <= consumed:
            self._newest = self._states.popleft()[1]
        return self._newest


def eval_loader(
    dataset: Dataset[Any], recipe: Batching, reading: Reading, world: World, batch: int
) -> tuple[EvalSampler, DataLoader[Any]]:
    """This rank's share of the evaluation batches, and the sampler that numbers them."""
    sampler = EvalSampler(sized(dataset, "val_data"), batch, world.rank, world.num_ranks)
    stream = KeyedDataset(dataset, reading.seed, "val")
    return sampler, _loader(stream, sampler, Collate(recipe, "val"), reading, world, "val")


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
