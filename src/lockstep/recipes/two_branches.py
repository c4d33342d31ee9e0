"""Digits of which the dark ones go through one branch of the model and the light ones through another.

The model that hangs in tutorials: a rank whose share holds no dark digit has no gradient for the dark branch, while the
others wait for it. Nothing here is made for that; the runtime completes what a rank left out.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from lockstep.core.errors import UserError, explain
from lockstep.recipes.scenes import require_sklearn
from lockstep.runtime.loss import Count, Term, Terms
from lockstep.runtime.recipe import Labels, Recipe

if TYPE_CHECKING:
    from torchmetrics import Metric

Batch = Mapping[str, Tensor]

CLASSES = 10


class DigitSet(Dataset[dict[str, Tensor]]):
    """scikit-learn's 8 x 8 digits, some of them dark: white ink on black; the others black ink on white.

    A sample is `{"image": (64,) float32 in 0 .. 1, "dark": () bool, "label": () int64}`.

    Args:
        held_out: every fifth digit, or the others.
        dark_share: share of the digits that are dark, spread evenly.
        noise: standard deviation of what is added to each pixel at each visit, drawn from torch's global generator.
    """

    def __init__(self, held_out: bool, dark_share: float, noise: float) -> None:
        from sklearn.datasets import load_digits

        images, digits = load_digits(return_X_y=True)
        which = (torch.arange(len(digits)) % 5 == 0) == held_out
        self.labels = torch.from_numpy(digits)[which].long()
        # A fixed mix of the numbers 0, 1, 2 ...: the same digits are dark everywhere.
        place = torch.arange(len(self.labels)) * 7919 % 1000
        self.dark = place < round(1000 * dark_share)
        ink = torch.from_numpy(images)[which].float() / 16
        self.images = torch.where(self.dark[:, None], ink, 1 - ink)
        self.noise = noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        image = self.images[index]
        if self.noise:
            image = image + self.noise * torch.randn(64, dtype=torch.float32)
        return {"image": image, "dark": self.dark[index], "label": self.labels[index]}


class Branched(nn.Module):
    """A trunk, two branches of which each sample takes one, and a head: (N, 64) floats -> (N, 10) logits.

    The branches are plain attributes, no ModuleList: what shards a model by the parts of its lists (FSDP2) makes no
    unit of its own of a branch that a rank may not call.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, hidden), nn.ReLU())
        self.dark = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU())
        self.light = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, image: Tensor, dark: Tensor) -> Tensor:
        """Logits; `dark` is (N,) bool. A branch that no sample takes is not called."""
        trunk = self.trunk(image)
        # places: (samples of the branch,)
        places = dark.nonzero().flatten(), (~dark).nonzero().flatten()
        taken = [(at, branch) for at, branch in zip(places, (self.dark, self.light), strict=True) if len(at)]
        # One after the other, then back into the order of the samples: no tensor is written in place.
        features = torch.cat([branch(trunk[at]) for at, branch in taken])
        logits: Tensor = self.head(features[torch.cat([at for at, _ in taken]).argsort()])
        return logits


class TwoBranches(Recipe):
    """Recognise dark and light digits with a branch for each. A constant model reaches an accuracy of 0.1.

    Args:
        dark_share: share of the digits that are dark, 0 .. 1. The rarer they are, the more often a rank has none.
        hidden: width of each layer.
        noise: standard deviation of what is added to each pixel of a training digit, new in each epoch.

    Raises:
        UserError: an option that no model can have, or scikit-learn is not installed.
    """

    def __init__(self, dark_share: float = 0.1, hidden: int = 64, noise: float = 0.1) -> None:
        require_sklearn("two_branches")
        if not 0 <= dark_share <= 1 or hidden < 1 or noise < 0:
            seen = f"options that no model can have: {dark_share=}, {hidden=}, {noise=}"
            must = "0 <= dark_share <= 1, hidden >= 1, noise >= 0"
            raise UserError(explain(seen, must, "options of the recipe two_branches"))
        self.dark_share, self.hidden, self.noise = dark_share, hidden, noise

    def model(self) -> nn.Module:
        """A new network with two branches."""
        return Branched(self.hidden)

    def train_data(self) -> DigitSet:
        """Four of five digits, noisy in another way in each epoch."""
        return DigitSet(False, self.dark_share, self.noise)

    def val_data(self) -> DigitSet:
        """The other digits, as they are."""
        return DigitSet(True, self.dark_share, 0.0)

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        """Cross entropy of every digit."""
        return self._terms(model(batch["image"], batch["dark"]), batch)

    def counts(self, batch: Batch) -> Mapping[str, Count]:
        """The number of digits."""
        return {"cross_entropy": len(batch["label"])}

    def metrics(self) -> "Mapping[str, Metric]":
        """Accuracy of all and of the dark digits, from integer counts."""
        from torchmetrics.classification import MulticlassAccuracy

        one, dark = (MulticlassAccuracy(CLASSES, average="micro", validate_args=False) for _ in range(2))
        return {"accuracy": one, "dark": dark}

    def evaluate(self, model: nn.Module, batch: Batch, metrics: "Mapping[str, Metric]") -> Terms:
        """One forward for the loss and both metrics."""
        logits, dark = model(batch["image"], batch["dark"]), batch["dark"]
        metrics["accuracy"].update(logits, batch["label"])
        if dark.any():
            metrics["dark"].update(logits[dark], batch["label"][dark])
        return self._terms(logits, batch)

    def floors(self) -> Mapping[str, float]:
        """The accuracy of a constant model."""
        return {"accuracy": 0.1, "dark": 0.1}

    def labels(self, batch: Batch) -> Labels:
        """(N,) digits."""
        return Labels(batch["label"], CLASSES)

    def _terms(self, logits: Tensor, batch: Batch) -> Terms:
        # A sum needs more than the 8 bits of bfloat16.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return {"cross_entropy": Term(F.cross_entropy(logits, batch["label"], reduction="sum"), len(batch["label"]))}
