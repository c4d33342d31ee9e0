"""Loaders of all kinds; each sample of a map-style one is its own index."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, get_worker_info


class Numbers(Dataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return index


class Keyed(Numbers):
    def __getitem__(self, index: Any) -> int:
        return int(index[1])


class Listed(Sampler[Any]):
    """Gives what it was given, and knows no length."""

    def __init__(self, given: list[Any]) -> None:
        self.given = given

    def __iter__(self) -> Iterator[Any]:
        return iter(self.given)


class Shared(IterableDataset[float]):
    """Split among workers, or the same in each."""

    def __init__(self, split: bool) -> None:
        self.split = split

    def __iter__(self) -> Iterator[float]:
        worker = get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker is not None and self.split else (0, 1)
        return (float(value) for value in range(start, 8, step))


def every_kind() -> dict[str, DataLoader[Any]]:
    """By name; sizes of data sets differ, so that no two are the same stream."""
    inner = Subset(Numbers(30), list(range(29, 0, -1)))
    return {
        "shuffled": DataLoader(Numbers(11), 4, shuffle=True),
        "cut": DataLoader(Numbers(12), 5, drop_last=True),
        "workers": DataLoader(Numbers(23), 2, shuffle=True, num_workers=2, prefetch_factor=4),
        "stay": DataLoader(Numbers(22), 2, shuffle=True, num_workers=2, persistent_workers=True),
        "one by one": DataLoader(Numbers(5), batch_size=None, shuffle=True),
        "one by one in workers": DataLoader(Numbers(6), batch_size=None, shuffle=True, num_workers=1),
        "subset of a subset": DataLoader(Subset(inner, [3, 1, 2]), 2, shuffle=True),
        "batches of pairs": DataLoader(Numbers(9), batch_sampler=Listed([(3, 7), (8, 2), (1,), (0, 4, 5)])),
        "a list": DataLoader(list(range(7)), 3, sampler=Listed([6, 0, 3])),  # type: ignore[arg-type]
        "keys": DataLoader(Keyed(13), batch_size=None, sampler=Listed([(0, 4), (0, 2)])),
        "batches of keys": DataLoader(Keyed(14), 2, sampler=Listed([(0, 4), (0, 2), (0, 9)])),
    }


def flat(batch: Any) -> list[int]:
    """The samples of a batch."""
    return batch.tolist() if isinstance(batch, torch.Tensor) and batch.dim() else [int(batch)]
