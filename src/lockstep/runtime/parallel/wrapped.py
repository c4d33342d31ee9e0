"""What every way of sharing a training among ranks gives to the step, the evaluation and the save."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from lockstep.runtime.loss import Terms, checked_terms
from lockstep.runtime.parallel.buffers import sync_buffers
from lockstep.runtime.recipe import Recipe


class Wrapped(ABC):
    """A recipe's task of one rank whose gradients, after a step's last backward, are those of all ranks.

    Attributes:
        model: the model without a wrapper; its parameters may be shards.
        recipe: gives the loss.
        paired: whether a forward communicates, so that all ranks must run the same number of them.
        carries: whether the gradients carry a whole number and a wish to stop to all ranks.
        unused: parameters that had no gradient on some rank in the last step.
        stop: whether any rank wished to stop, where the gradients carry it.
    """

    model: nn.Module
    recipe: Recipe
    paired = False
    carries = False
    unused: frozenset[str] = frozenset()
    stop = False

    @abstractmethod
    def forward(self, batch: Any) -> Terms:
        """The terms of this rank's micro-batch."""

    def evaluate(self, batch: Any, metrics: Mapping[str, Any]) -> Terms:
        """The terms of an evaluation batch; updates the metrics."""
        return checked_terms(self.recipe.evaluate(self.model, batch, metrics), type(self.recipe).__name__)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The model in evaluation mode; afterwards as it was."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    @abstractmethod
    def accumulating(self) -> AbstractContextManager[None]:
        """Context for forward and backward of all but the last micro-step: gradients are not reduced."""

    @abstractmethod
    def backward(self, loss: Tensor, last: bool, count: int | Tensor = 0, stop: bool = False) -> int:
        """Backward of one micro-step; after the last one, gradients are those of all ranks.

        Args:
            loss: scalar.
            last: whether this is the last micro-step.
            count: a whole number for the gradients to carry, where they do.
            stop: a wish to stop for them to carry.

        Returns:
            The sum of `count` over the ranks after the last micro-step, 0 before or where nothing carries it.
        """

    def norm(self, params: Sequence[nn.Parameter]) -> Tensor:
        """The L2 norm of the whole gradient over all of these parameters, the same on every rank."""
        return nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])

    def sync_buffers(self) -> None:
        """Rank 0's buffers on every rank."""
        sync_buffers(self.model)

    def communication_s(self) -> tuple[float, float] | None:
        """Seconds of the last sampled step in (all gradient communication, its part hidden behind backward).

        None where it cannot be told apart.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Drop the wrapper, which must not outlive the process group."""


class Plain(Wrapped):
    """A model of one process, for whoever has wrapped nothing.

    Args:
        model: the model.
        recipe: gives the loss.
    """

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        self.model, self.recipe = model, recipe

    def forward(self, batch: Any) -> Terms:
        """The terms of a micro-batch."""
        return checked_terms(self.recipe.loss(self.model, batch), type(self.recipe).__name__)

    def accumulating(self) -> AbstractContextManager[None]:
        """Nothing is reduced anyway."""
        return nullcontext()

    def backward(self, loss: Tensor, last: bool, count: int | Tensor = 0, stop: bool = False) -> int:
        """Backward of one micro-step."""
        loss.backward()
        return 0

    def close(self) -> None:
        """Nothing to drop."""
