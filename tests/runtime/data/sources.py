"""Small data sets that are random, or wrong in one place, and worlds that nobody has joined."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from lockstep.runtime.recipe import Labels, Recipe
from lockstep.runtime.world import Place, World

CPU = torch.device("cpu")


def world_of(rank: int, num_ranks: int) -> World:
    """A rank's world, for what needs no communication."""
    return World(Place(rank, num_ranks, rank, num_ranks), CPU)


class Noisy(Dataset[dict[str, Tensor]]):
    """Each sample: its index, a label in 0 .. 2, and a draw from each of the three global generators."""

    def __init__(self, length: int, raises: int = -1, label: tuple[int, int] = (-1, 0)) -> None:
        self.length, self.raises, self.label = length, raises, label

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if index == self.raises:
            raise OSError("cannot read image.png")
        draws = [float(torch.rand(())), np.random.rand(), random.random()]
        y = self.label[1] if index == self.label[0] else index % 3
        return {"index": torch.tensor(index), "y": torch.tensor(y), "draws": torch.tensor(draws, dtype=torch.float64)}


class NoisyStream(IterableDataset[dict[str, Tensor]]):
    """The same samples as a stream; shuffled by a buffer that draws from the global generators."""

    def __init__(self, length: int, raises: int = -1, shuffled: bool = False) -> None:
        self.samples, self.shuffled = Noisy(length, raises), shuffled

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        order = list(range(len(self.samples)))
        if self.shuffled:
            random.shuffle(order)
        for index in order:
            yield self.samples[index]


class Task(Recipe):
    """Collates as torch does; labels of three classes and 255."""

    def model(self) -> nn.Module:
        return nn.Identity()

    def train_data(self) -> Dataset[Any]:
        return Noisy(10)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        raise NotImplementedError

    def labels(self, batch: Any) -> Labels | None:
        return Labels(batch["y"], 3, 255)
