"""What all ways of sharing a training have in common, and the one that shares nothing."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.runtime.loss import Term
from lockstep.runtime.parallel.wrapped import Plain
from lockstep.runtime.recipe import Recipe


class Task(Recipe):
    def model(self) -> nn.Module:
        return nn.Linear(3, 1)

    def train_data(self) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Tensor) -> Mapping[str, Term]:
        return {"loss": Term(model(batch).square().sum(), len(batch))}


def test_a_model_of_one_process_trains_and_evaluates() -> None:
    task = Task()
    plain = Plain(task.model().train(), task)
    with plain.accumulating():
        terms = plain.forward(torch.ones(2, 3))
    assert plain.backward(terms["loss"].sum, last=True) == 0
    norm = plain.norm(list(plain.model.parameters()))
    grads = [param.grad for param in plain.model.parameters() if param.grad is not None]
    assert torch.equal(norm, nn.utils.get_total_norm(grads))
    with plain.evaluating():
        assert not plain.model.training
        assert torch.equal(plain.evaluate(torch.ones(2, 3), {})["loss"].sum, terms["loss"].sum)
    assert plain.model.training
    assert plain.communication_s() is None
    plain.close()
