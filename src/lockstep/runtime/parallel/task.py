"""A recipe and its model as one module, so that nothing in the loss can bypass the forward of a wrapper."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from lockstep.runtime.loss import Terms, checked_terms
from lockstep.runtime.recipe import Recipe


class Task(nn.Module):
    """The loss of a recipe, and its evaluation where metrics are given.

    Args:
        model: the model on its device.
        recipe: gives `loss` and `evaluate`.
    """

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        self.model = model
        self.recipe = recipe

    def forward(self, batch: Any, metrics: Mapping[str, Any] | None = None) -> Terms:
        """The terms of one micro-batch, or of one evaluation batch, which updates the metrics."""
        name = type(self.recipe).__name__
        if metrics is None:
            return checked_terms(self.recipe.loss(self.model, batch), name)
        return checked_terms(self.recipe.evaluate(self.model, batch, metrics), name)
