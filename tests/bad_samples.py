"""A recipe with good samples, and one or another that is bad, for `lockstep scan`."""

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from lockstep.runtime.loss import Terms
from lockstep.runtime.recipe import Labels, Recipe

Sample = dict[str, Any]
SIDE = 6


def good(index: int) -> Sample:
    # Noise under the sample stream, as augmentation makes it.
    return {"image": torch.rand(3, SIDE, SIDE), "label": torch.full((SIDE, SIDE), index % 3)}


def _raises(index: int) -> Sample:
    raise OSError(f"image {index} is truncated <Buffer at 0x7f{index:010x}>")


def _kill(index: int) -> Sample:
    faulthandler.disable()  # pytest's, which would write pages
    os.kill(os.getpid(), signal.SIGSEGV)
    return good(index)


def _exit(index: int) -> Sample:
    os._exit(7)


def _hang(index: int) -> Sample:
    time.sleep(1000)
    return good(index)


def _nan(index: int) -> Sample:
    sample = good(index)
    sample["image"][1, 2, 3] = torch.nan
    sample["image"][2] = torch.inf
    return sample


def _label(index: int) -> Sample:
    sample = good(index)
    sample["label"][:2] = 9
    sample["label"][5, 5] = -1
    return sample


def _ignored(index: int) -> Sample:
    return {**good(index), "label": torch.full((SIDE, SIDE), 255)}


FAULTS: Mapping[str, Callable[[int], Any]] = {
    "raises": _raises,
    "kill": _kill,
    "exit": _exit,
    "hang": _hang,
    "nan": _nan,
    "label": _label,
    "shape": lambda index: {**good(index), "image": torch.rand(3, SIDE, SIDE + 1)},
    "axes": lambda index: {**good(index), "image": torch.rand(SIDE, SIDE)},
    "bytes": lambda index: {**good(index), "image": torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)},
    "lacks": lambda index: {"image": torch.rand(3, SIDE, SIDE)},
    "more": lambda index: {**good(index), "weight": torch.tensor(1.0)},
    "tuple": lambda index: tuple(good(index).values()),
    "empty": lambda index: {**good(index), "image": torch.rand(3, 0, SIDE)},
    "nothing": lambda index: None,
    "ignored": _ignored,
}


class Planted(Dataset[Any]):
    """Good samples but for those at the given indices."""

    def __init__(self, length: int, faults: Mapping[int, str], named: bool = False) -> None:
        self.length, self.faults = length, faults
        if named:
            self.where = lambda index: f"images/{index:03d}.png"

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(index)
        fault = self.faults.get(index)
        return good(index) if fault is None else FAULTS[fault](index)


class Stream(IterableDataset[Any]):
    def __init__(self, inner: Planted) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self.inner)):
            yield self.inner[index]


class BadSamples(Recipe):
    """Options: `faults` as `INDEX:FAULT,INDEX:FAULT` of the training set, which has `length` samples."""

    def __init__(self, faults: str = "", length: int = 60, stream: bool = False, val_faults: str = "") -> None:
        self.faults, self.val_faults = ({int(i): f for i, f in _pairs(text)} for text in (faults, val_faults))
        self.length, self.stream = length, stream

    def model(self) -> nn.Module:
        return nn.Conv2d(3, 3, 1)

    def train_data(self) -> Dataset[Any]:
        print("a recipe that prints")
        planted = Planted(self.length, self.faults, named=True)
        return Stream(planted) if self.stream else planted

    def val_data(self) -> Dataset[Any]:
        return Planted(20, self.val_faults)

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Terms:
        raise NotImplementedError

    def labels(self, batch: Mapping[str, Tensor]) -> Labels:
        return Labels(batch["label"], 3, 255)


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(index, fault) for index, _, fault in (item.partition(":") for item in text.split(",") if item)]
