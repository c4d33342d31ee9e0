"""The same in a recipe for `lockstep train`."""

import time
from typing import Any

import deeds
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from lockstep.runtime.loss import Term, Terms
from lockstep.runtime.recipe import Recipe

Batch = dict[str, Tensor]


class Faulty(Recipe):
    """A linear model, and a fault on one rank after some steps."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.steps = fault, 0

    def model(self) -> nn.Module:
        return nn.Linear(8, 1)

    def train_data(self) -> deeds.Data:
        if self.fault == "other_data":
            if deeds.at_fault():
                deeds.say()
            return deeds.Data(4000 - 10 * deeds.at_fault())
        return deeds.Data(fault=self.fault if self.fault in deeds.IN_WORKER else "", at=deeds.STEP * deeds.BATCH)

    def val_data(self) -> deeds.Data | None:
        return deeds.Data(40) if self.fault == "evaluates_for_ever" else None

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        time.sleep(0.02)
        self.steps += 1
        if self.steps == deeds.STEP:
            if self.fault == "launcher" and deeds.at_fault():
                deeds.say()
            if self.fault in deeds.TOGETHER:
                deeds.together(self.fault)
            if self.fault in deeds.IN_LOOP and deeds.at_fault():
                deeds.strike(self.fault)
        return self._terms(model, batch)

    def evaluate(self, model: nn.Module, batch: Batch, metrics: Any) -> Terms:
        if self.fault == "evaluates_for_ever" and self.steps >= deeds.STEP and deeds.at_fault():
            deeds.strike(self.fault)
        return self._terms(model, batch)

    def _terms(self, model: nn.Module, batch: Batch) -> Terms:
        loss: Tensor = mse_loss(model(batch["point"]), batch["label"], reduction="sum")
        return {"mse": Term(loss, torch.tensor(len(batch["label"])))}
