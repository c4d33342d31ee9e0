"""What a user writes: model, data, loss and metrics. Everything else about N ranks is the runtime's."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.runtime.loss import Count, Terms
from lockstep.runtime.trackers import Tracker

if TYPE_CHECKING:
    # Its import costs more than a second; a run without metrics, and a first step, do without it.
    from torchmetrics import Metric


class Labels(NamedTuple):
    """Class labels of a batch, to be checked on the host before any device sees them.

    Attributes:
        values: (batch, ...) integers.
        num_classes: valid labels are 0 .. num_classes - 1.
        ignore_index: a further value that is allowed, None where there is none.
    """

    values: Tensor
    num_classes: int
    ignore_index: int | None = None


class Batching:
    """How samples become a batch. By itself: torch's `default_collate`, labels unchecked."""

    def labels(self, batch: Any) -> Labels | None:
        """The class labels of a batch, so that a wrong one is named by rank, sample and value; None to skip."""
        return None

    def collate(self, samples: list[Any]) -> Any:
        """Make one batch of a list of samples. The default is torch's `default_collate`."""
        from torch.utils.data import default_collate

        return default_collate(samples)


class Recipe(Batching, ABC):
    """One training task, written for one process; nothing in it knows the number of ranks.

    The keyword arguments of `__init__` are the recipe's options: `options.NAME=VALUE` in the config.
    """

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model. Called once on every rank under the shared random stream."""

    @abstractmethod
    def train_data(self) -> Dataset[Any]:
        """The training set: map-style, or an IterableDataset that yields the same stream on every rank."""

    def val_data(self) -> Dataset[Any] | None:
        """The map-style validation set; None where there is none."""
        return None

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Terms:
        """The loss of one batch as named (sum, count) terms; the runtime divides by the counts of all ranks."""

    def counts(self, batch: Any) -> Mapping[str, Count] | None:
        """The counts of `loss` where the batch alone tells them, by term name.

        Given, their sum over the ranks is taken while the forward runs. Left out, it is taken between forward
        and backward, which costs a round trip; accumulation with several terms needs them given.
        """
        return None

    def sizes(self, data: Dataset[Any]) -> Sequence[int] | None:
        """The targets (tokens, pixels) of each sample of the training set; None where they are not known.

        Needed where the batch is counted in targets (`batch.global_targets`) or samples of like size come together
        (`data.bucket`). Called once at each start, on every rank with the same result, so it is cheap: from lengths
        that the data set knows, not by reading every sample.

        Args:
            data: what `train_data` returned.
        """
        return None

    def metrics(self) -> "Mapping[str, Metric]":
        """New torchmetrics objects for one evaluation, by name."""
        return {}

    def evaluate(self, model: nn.Module, batch: Any, metrics: "Mapping[str, Metric]") -> Terms:
        """Update every metric with one validation batch and return its loss terms. Runs without gradients."""
        return self.loss(model, batch)

    def floors(self) -> Mapping[str, float]:
        """What a model that has learnt nothing reaches in each metric; shown beside the results."""
        return {}

    def trackers(self) -> "Sequence[Tracker]":
        """Trackers of your own, beside those of the config. Called on rank 0, not by `lockstep verify`."""
        return ()
