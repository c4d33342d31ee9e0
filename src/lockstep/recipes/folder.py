"""Classification of pictures from one folder for each class."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.core.errors import UserError, explain
from lockstep.recipes.files.bad import require_pillow, shown
from lockstep.recipes.files.listing import require_folder
from lockstep.recipes.resnet import ResNet
from lockstep.runtime.loss import Count, Term, Terms
from lockstep.runtime.recipe import Labels, Recipe

if TYPE_CHECKING:
    from torchmetrics import Metric

    from lockstep.recipes.files.class_set import ClassSet, Labelled
    from lockstep.recipes.files.class_views import ClassView

Batch = Mapping[str, Tensor]

LARGE = 64
"""Pictures above this side in px are halved by the model's first layer."""


class Folder(Recipe):
    """Say of which class a picture is; the classes are the folders, sorted by name.

    Args:
        root: holds train/CLASS/PICTURE and val/CLASS/PICTURE; or CLASS/PICTURE, and the names of the pictures decide
            which are for validation.
        val_share: share of the pictures for validation where there is no folder train/; 0 for none.
        size: side of a sample in px.
        scale: the least and the greatest share of a picture's area that a training sample shows.
        flip: share of the training pictures that are mirrored.
        jitter: strength of random changes of brightness, contrast and saturation, 0 .. 1; 0 for none.
        center: share of the picture's shorter side that a validation sample shows.
        width: channels of the first stage of the residual network; they double at each further one.
        depth: stages.
        blocks: residual blocks of each stage.

    Raises:
        UserError: an option that no data set or model can have, or Pillow is not installed.
    """

    def __init__(
        self,
        root: str,
        val_share: float = 0.2,
        size: int = 224,
        scale: tuple[float, float] = (0.2, 1.0),
        flip: float = 0.5,
        jitter: float = 0.0,
        center: float = 0.875,
        width: int = 32,
        depth: int = 4,
        blocks: int = 2,
    ) -> None:
        require_pillow("folder")
        self.root = Path(root).expanduser()
        self.val_share, self.size, self.scale, self.flip = val_share, size, scale, flip
        self.jitter, self.center = jitter, center
        self.width, self.depth, self.blocks = width, depth, blocks
        self._check()

    def _check(self) -> None:
        rules = {
            f"val_share={self.val_share}": 0 <= self.val_share < 1,
            f"size={self.size}": self.size >= 1,
            f"scale={list(self.scale)}": 0 < self.scale[0] <= self.scale[1] <= 1,
            f"flip={self.flip}": 0 <= self.flip <= 1,
            f"jitter={self.jitter}": 0 <= self.jitter <= 1,
            f"center={self.center}": 0 < self.center <= 1,
            f"width={self.width}": self.width >= 1,
            f"depth={self.depth}": self.depth >= 1,
            f"blocks={self.blocks}": self.blocks >= 1,
        }
        if wrong := [option for option, holds in rules.items() if not holds]:
            must = (
                "0 <= val_share < 1; 0 < scale[0] <= scale[1] <= 1; flip and jitter in 0 .. 1; 0 < center <= 1; "
                "size, width, depth and blocks at least 1"
            )
            raise UserError(
                explain(f"options that do not fit: {', '.join(wrong)}", must, "options of the recipe folder")
            )

    @cached_property
    def classes(self) -> list[str]:
        """The names of the classes; the number of a class is its place here."""
        from lockstep.recipes.files.class_set import class_names

        require_folder(self.root, "the folder of the pictures")
        return class_names(self.root / "train" if self._has_splits else self.root)

    @cached_property
    def _has_splits(self) -> bool:
        return (self.root / "train").is_dir()

    @cached_property
    def _samples(self) -> "tuple[list[Labelled], list[Labelled]]":
        """Training and validation."""
        from lockstep.recipes.files.class_set import held_out, labelled, require_every_class

        train = labelled(self.root, "train" if self._has_splits else "", self.classes)
        val: list[Labelled] = []
        if self._has_splits and (self.root / "val").is_dir():
            val = labelled(self.root, "val", self.classes)
            if not val:
                seen, must = "the folder val has no picture in its folders of classes", "pictures, or no folder val"
                raise UserError(explain(seen, must, shown(self.root / "val")))
        elif not self._has_splits:
            is_held_out = held_out(self.val_share)
            train, val = [s for s in train if not is_held_out(s)], [s for s in train if is_held_out(s)]
        require_every_class(train, self.classes, self.root)
        return train, val

    def model(self) -> nn.Module:
        """A new residual network: (N, 3, size, size) -> (N, classes)."""
        stem = 2 if self.size > LARGE else 1
        return ResNet(len(self.classes), self.width, [self.blocks] * self.depth, stem)

    def train_data(self) -> "ClassSet":
        """Random parts, others in each epoch."""
        from lockstep.recipes.files.class_views import RandomPart

        return self._set(self._samples[0], RandomPart(self.size, self.scale, self.flip, self.jitter), "train")

    def val_data(self) -> "ClassSet | None":
        """The middle of each picture; None where there is no validation set."""
        from lockstep.recipes.files.class_views import Middle

        return self._set(self._samples[1], Middle(self.size, self.center), "val") if self._samples[1] else None

    def _set(self, samples: "list[Labelled]", view: "ClassView", name: str) -> "ClassSet":
        from lockstep.recipes.files.class_set import ClassSet

        return ClassSet(self.root, samples, view, name)

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        """Cross entropy of every picture."""
        return self._terms(model(batch["image"]), batch)

    def counts(self, batch: Batch) -> Mapping[str, Count]:
        """The number of pictures."""
        return {"cross_entropy": len(batch["label"])}

    def metrics(self) -> "Mapping[str, Metric]":
        """How often the right class comes first, and with more than five classes, among the first five; from counts."""
        from torchmetrics.classification import MulticlassAccuracy

        found: dict[str, Metric] = {
            name: MulticlassAccuracy(len(self.classes), top_k=k, average="micro", validate_args=False)
            for name, k in self._tops().items()
        }
        return found

    def evaluate(self, model: nn.Module, batch: Batch, metrics: "Mapping[str, Metric]") -> Terms:
        """One forward for the loss and the metrics."""
        logits = model(batch["image"])
        for metric in metrics.values():
            metric.update(logits, batch["label"])
        return self._terms(logits, batch)

    def floors(self) -> Mapping[str, float]:
        """What a model reaches that says the same classes of every picture, the most frequent ones."""
        val = self.val_data()
        if val is None:
            return {}
        most = [count for _, count in val.counts().most_common()]
        return {name: sum(most[:k]) / len(val) for name, k in self._tops().items()}

    def labels(self, batch: Batch) -> Labels:
        """(N,) numbers of classes."""
        return Labels(batch["label"], len(self.classes))

    def _tops(self) -> dict[str, int]:
        return {"accuracy": 1, "top5": 5} if len(self.classes) > 5 else {"accuracy": 1}

    def _terms(self, logits: Tensor, batch: Batch) -> Terms:
        # A sum needs more than the 8 bits of bfloat16.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return {"cross_entropy": Term(F.cross_entropy(logits, batch["label"], reduction="sum"), len(batch["label"]))}
