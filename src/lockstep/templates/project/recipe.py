"""What is trained: model, data, loss, metrics. Written as for one process; nothing here knows the number of ranks."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from lockstep.runtime import Labels, Recipe, Term
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from data import CLASSES, Shapes

Batch = Mapping[str, Tensor]


class ShapeRecipe(Recipe):
    """Say which shape a picture shows. The keyword arguments are the `options` of config.yaml."""

    def __init__(self, train_images: int = 2000, val_images: int = 400, size: int = 24, width: int = 16) -> None:
        self.train_images, self.val_images, self.size, self.width = train_images, val_images, size, width

    def model(self) -> nn.Module:
        """(N, 3, size, size) -> (N, 4). GroupNorm, since BatchNorm depends on how a batch is split over the ranks."""
        channels = (3, self.width, 2 * self.width, 4 * self.width)
        layers: list[nn.Module] = []
        for before, after in pairwise(channels):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], len(CLASSES)))

    def train_data(self) -> Shapes:
        """The whole training set; which rank reads which sample is not decided here."""
        return Shapes(self.train_images, self.size, seed=1, augment=True)

    def val_data(self) -> Shapes:
        """Other pictures, not augmented."""
        return Shapes(self.val_images, self.size, seed=2)

    def loss(self, model: nn.Module, batch: Batch) -> Mapping[str, Term]:
        """A sum and a count, never a mean: the mean over all ranks is taken once, at the end."""
        return self.term(model(batch["image"]), batch["label"])

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """The count of `loss`, known before the forward: it travels while the forward runs."""
        return {"cross_entropy": len(batch["label"])}

    def metrics(self) -> Mapping[str, Metric]:
        """Any torchmetrics objects; they are merged over the ranks."""
        return {"accuracy": MulticlassAccuracy(len(CLASSES), average="micro")}

    def evaluate(self, model: nn.Module, batch: Batch, metrics: Mapping[str, Metric]) -> Mapping[str, Term]:
        """Update the metrics with one validation batch, and return its loss."""
        logits = model(batch["image"])
        metrics["accuracy"].update(logits, batch["label"])
        return self.term(logits, batch["label"])

    def labels(self, batch: Batch) -> Labels:
        """What the labels may be: a wrong one is named by its sample before any GPU sees it."""
        return Labels(batch["label"], len(CLASSES))

    def floors(self) -> Mapping[str, float]:
        """The accuracy of a model that has learnt nothing, shown beside the result."""
        return {"accuracy": 1 / len(CLASSES)}

    def term(self, logits: Tensor, labels: Tensor) -> Mapping[str, Term]:
        """Cross entropy; summed in 32 bits or more, since bf16 has only 8 for the digits of a number."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return {"cross_entropy": Term(F.cross_entropy(logits, labels, reduction="sum"), len(labels))}
