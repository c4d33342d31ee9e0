"""The one module that a wrapper sees."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.runtime.loss import Term
from lockstep.runtime.parallel.task import Task
from lockstep.runtime.recipe import Recipe


class Twice(Recipe):
    """Its evaluation is not its loss."""

    def model(self) -> nn.Module:
        return nn.Linear(3, 1)

    def train_data(self) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Tensor) -> Any:
        return {"loss": Term(model(batch).sum(), len(batch))} if len(batch) > 1 else "nothing"

    def evaluate(self, model: nn.Module, batch: Tensor, metrics: Mapping[str, Any]) -> Any:
        metrics["seen"].append(len(batch))
        return {"loss": Term(2 * model(batch).sum(), len(batch))}


def test_loss_without_metrics_and_evaluation_with() -> None:
    task, seen = Task(nn.Linear(3, 1), Twice()), []
    batch = torch.ones(2, 3)
    loss, evaluated = task(batch)["loss"], task(batch, {"seen": seen})["loss"]
    assert torch.equal(2 * loss.sum, evaluated.sum)
    assert seen == [2]


def test_terms_are_checked() -> None:
    with pytest.raises(UserError, match=r"Twice.loss returned str"):
        Task(nn.Linear(3, 1), Twice())(torch.ones(1, 3))
