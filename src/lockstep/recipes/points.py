"""Classification of generated points on interleaved spirals with an MLP: the smallest recipe, done in seconds."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from lockstep.core.errors import UserError, explain
from lockstep.runtime.loss import Count, Term, Terms
from lockstep.runtime.recipe import Labels, Recipe

if TYPE_CHECKING:
    from torchmetrics import Metric

Batch = Mapping[str, Tensor]

TURNS = 1.25
"""How far each spiral winds around the origin."""


class SpiralSet(Dataset[dict[str, Tensor]]):
    """Points on spiral arms, one arm a class: `{"point": (2,) float32 in about -1 .. 1, "label": () int64}`.

    Args:
        points: how many points there are; their classes take turns.
        classes: number of arms.
        noise: standard deviation of the distance from the arm.
        seed: another seed gives other points.
        jitter: standard deviation of a further shift at each visit, drawn from torch's global random generator.
    """

    def __init__(self, points: int, classes: int, noise: float, seed: int, jitter: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.jitter = jitter
        self.labels = torch.arange(points) % classes
        # float32 whatever the default type is, so that a run in float64 sees the same points.
        radius = 0.1 + 0.9 * torch.rand(points, generator=generator, dtype=torch.float32)
        angle = 2 * math.pi * (TURNS * radius + self.labels / classes)
        arm = radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
        self.points = arm + noise * torch.randn(points, 2, generator=generator, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        point = self.points[index]
        if self.jitter:
            point = point + self.jitter * torch.randn_like(point)
        return {"point": point, "label": self.labels[index]}


class Points(Recipe):
    """Say for every point to which spiral arm it belongs. A constant model reaches an accuracy of 1 / classes.

    Args:
        samples: training points in an epoch.
        val_samples: points of the validation set; 0 for none.
        classes: number of spiral arms.
        noise: standard deviation of a point's distance from its arm; the arms reach out to 1.
        jitter: standard deviation of a random shift of each training point, new in each epoch.
        hidden: width of each hidden layer.
        layers: number of hidden layers.
        batchnorm: BatchNorm after each hidden layer.
        dropout: share of the hidden values that is dropped in training.
        data_seed: another seed gives other points.
    """

    def __init__(
        self,
        samples: int = 3000,
        val_samples: int = 600,
        classes: int = 3,
        noise: float = 0.03,
        jitter: float = 0.0,
        hidden: int = 64,
        layers: int = 2,
        batchnorm: bool = False,
        dropout: float = 0.0,
        data_seed: int = 0,
    ) -> None:
        if classes < 2 or hidden < 1 or layers < 1 or not 0 <= dropout < 1:
            raise UserError(
                explain(
                    f"options that no model can have: {classes=}, {hidden=}, {layers=}, {dropout=}",
                    must="classes >= 2, hidden >= 1, layers >= 1, 0 <= dropout < 1",
                    where="options of the recipe points",
                )
            )
        self.samples, self.val_samples = samples, val_samples
        self.classes, self.noise, self.jitter, self.data_seed = classes, noise, jitter, data_seed
        self.hidden, self.layers, self.batchnorm, self.dropout = hidden, layers, batchnorm, dropout

    def model(self) -> nn.Module:
        """A new MLP: (N, 2) -> (N, classes)."""
        modules: list[nn.Module] = []
        for layer in range(self.layers):
            modules.append(nn.Linear(self.hidden if layer else 2, self.hidden))
            if self.batchnorm:
                modules.append(nn.BatchNorm1d(self.hidden))
            modules.append(nn.ReLU())
            if self.dropout:
                modules.append(nn.Dropout(self.dropout))
        return nn.Sequential(*modules, nn.Linear(self.hidden, self.classes))

    def train_data(self) -> SpiralSet:
        """The training points, with jitter where it is asked for."""
        return SpiralSet(self.samples, self.classes, self.noise, 2 * self.data_seed, self.jitter)

    def val_data(self) -> SpiralSet | None:
        """Other points of the same arms."""
        if not self.val_samples:
            return None
        return SpiralSet(self.val_samples, self.classes, self.noise, 2 * self.data_seed + 1)

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        """Cross entropy of every point."""
        return self._terms(model(batch["point"]), batch)

    def counts(self, batch: Batch) -> Mapping[str, Count]:
        """The number of points."""
        return {"cross_entropy": len(batch["label"])}

    def metrics(self) -> "Mapping[str, Metric]":
        """Accuracy from integer counts, so that it is the same at every number of ranks."""
        from torchmetrics.classification import MulticlassAccuracy

        return {"accuracy": MulticlassAccuracy(self.classes, average="micro", validate_args=False)}

    def evaluate(self, model: nn.Module, batch: Batch, metrics: "Mapping[str, Metric]") -> Terms:
        """One forward for the loss and the accuracy."""
        logits = model(batch["point"])
        metrics["accuracy"].update(logits, batch["label"])
        return self._terms(logits, batch)

    def floors(self) -> Mapping[str, float]:
        """The accuracy of a constant model."""
        return {"accuracy": 1 / self.classes}

    def labels(self, batch: Batch) -> Labels:
        """(N,) labels 0 .. classes - 1."""
        return Labels(batch["label"], self.classes)

    def _terms(self, logits: Tensor, batch: Batch) -> Terms:
        # A sum needs more than the 8 bits of bfloat16.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return {"cross_entropy": Term(F.cross_entropy(logits, batch["label"], reduction="sum"), len(batch["label"]))}
