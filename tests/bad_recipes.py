"""Recipes with one fault each, for `test_bad_input.py`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.recipes.points import Batch, Points, SpiralSet
from lockstep.runtime.loss import Term, Terms


class Small(Points):
    """60 points, and a fault at one of them."""

    def __init__(self, at: int = 13, hidden: int = 8) -> None:
        super().__init__(samples=60, val_samples=20, hidden=hidden, layers=1)
        self.at = at


class EmptyTraining(Small):
    def train_data(self) -> SpiralSet:
        return SpiralSet(0, 3, 0.1, 0)


class EmptyValidation(Small):
    def val_data(self) -> SpiralSet:
        return SpiralSet(0, 3, 0.1, 0)


class WithFault(Dataset[dict[str, Tensor]]):
    def __init__(self, inner: SpiralSet, at: int, fault: str) -> None:
        self.inner, self.at, self.fault = inner, at, fault

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        sample = self.inner[index]
        if index != self.at:
            return sample
        if self.fault == "raises":
            raise ValueError(f"image {index} is truncated")
        if self.fault == "label":
            return {**sample, "label": torch.tensor(7)}
        return {**sample, "point": torch.full((2,), torch.nan)}


class WrongLabel(Small):
    def train_data(self) -> Any:
        return WithFault(super().train_data(), self.at, "label")


class WrongValidationLabel(Small):
    def val_data(self) -> Any:
        return WithFault(super().val_data(), self.at, "label")  # type: ignore[arg-type]


class Unreadable(Small):
    def train_data(self) -> Any:
        return WithFault(super().train_data(), self.at, "raises")


class NotANumber(Small):
    """One sample that makes each step that has it not finite."""

    def train_data(self) -> Any:
        return WithFault(super().train_data(), self.at, "nan")


class NoTerms(Small):
    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        return model(batch["point"]).sum()  # type: ignore[no-any-return]


class WrongCounts(Small):
    def counts(self, batch: Batch) -> dict[str, int]:
        return {"cross_entropy": 1}


class RaisingLoss(Small):
    """The user's own mistake in a line of their own."""

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        return {"cross_entropy": Term(model(batch["pixels"]).sum(), 1)}


class Talkative(Small):
    """Not bad, but it prints, and every rank makes a model."""

    def model(self) -> nn.Module:
        print("a model is made")
        return super().model()
