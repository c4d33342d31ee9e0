"""Segmentation of handwritten-digit scenes with a U-Net: the demo of the runtime."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.core.errors import UserError, explain
from lockstep.recipes.scenes import CLASSES, GLYPH_SIDES, IGNORE, DigitSceneSet, Glyphs, load_glyphs, require_sklearn
from lockstep.recipes.unet import UNet
from lockstep.runtime.loss import Count, Term, Terms
from lockstep.runtime.recipe import Labels, Recipe

if TYPE_CHECKING:
    from torchmetrics import Metric

Batch = Mapping[str, Tensor]


class DigitScenes(Recipe):
    """Say for every pixel of a scene which handwritten digit it belongs to, if any.

    With the default options a model that calls everything background reaches a mean intersection over union (mIoU) of
    0.08, one that guesses reaches 0.02. Trained as its packaged config says, it reaches more than 0.8.

    Args:
        size: side of the image in px, a multiple of 2**depth.
        train_scenes: scenes in an epoch.
        val_scenes: scenes of the validation set, drawn with digit images that are in no training scene; 0 for none.
        digits_per_scene: most digits in a scene.
        width: channels of the U-Net at full resolution.
        depth: how often the U-Net halves the image.
        data_seed: another seed gives other scenes.

    Raises:
        UserError: an option that no scene or model can have, or scikit-learn is not installed.
    """

    def __init__(
        self,
        size: int = 64,
        train_scenes: int = 1600,
        val_scenes: int = 200,
        digits_per_scene: int = 8,
        width: int = 16,
        depth: int = 3,
        data_seed: int = 0,
    ) -> None:
        require_sklearn()
        if depth < 1 or size % 2**depth or size < max(GLYPH_SIDES) or width < 1 or digits_per_scene < 1:
            raise UserError(
                explain(
                    f"options that no scene or model can have: {size=}, {depth=}, {width=}, {digits_per_scene=}",
                    must=f"size a multiple of 2**depth and at least {max(GLYPH_SIDES)}, the others at least 1",
                    where="options of the recipe digit_scenes",
                )
            )
        self.size, self.width, self.depth = size, width, depth
        self.train_scenes, self.val_scenes = train_scenes, val_scenes
        self.digits_per_scene, self.data_seed = digits_per_scene, data_seed

    def model(self) -> nn.Module:
        """A new U-Net: (N, 3, size, size) -> (N, 11, size, size)."""
        return UNet(CLASSES, width=self.width, depth=self.depth)

    def train_data(self) -> DigitSceneSet:
        """Scenes that are shifted, tinted and noisy in another way in each epoch."""
        return self._scenes(load_glyphs()[0], self.train_scenes, seed=2 * self.data_seed, augment=True)

    def val_data(self) -> DigitSceneSet | None:
        """Scenes that stay as they are."""
        if not self.val_scenes:
            return None
        return self._scenes(load_glyphs()[1], self.val_scenes, seed=2 * self.data_seed + 1, augment=False)

    def _scenes(self, glyphs: Glyphs, scenes: int, seed: int, augment: bool) -> DigitSceneSet:
        return DigitSceneSet(glyphs, scenes, self.size, self.digits_per_scene, seed, augment)

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        """Cross entropy of every pixel that is not ignored."""
        return self._terms(model(batch["image"]), batch)

    def counts(self, batch: Batch) -> Mapping[str, Count]:
        """The number of pixels that are not ignored."""
        return {"cross_entropy": (batch["label"] != IGNORE).sum()}

    def metrics(self) -> "Mapping[str, Metric]":
        """Both keep integer counts, so that they are the same at every number of ranks."""
        from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

        # validate_args asks for the unique values of every batch; `labels` has them checked already.
        return {
            "miou": MulticlassJaccardIndex(CLASSES, ignore_index=IGNORE, validate_args=False),
            "accuracy": MulticlassAccuracy(CLASSES, average="micro", ignore_index=IGNORE, validate_args=False),
        }

    def evaluate(self, model: nn.Module, batch: Batch, metrics: "Mapping[str, Metric]") -> Terms:
        """One forward for the loss and both metrics."""
        logits = model(batch["image"])
        predicted = logits.argmax(dim=1)
        for metric in metrics.values():
            metric.update(predicted, batch["label"])
        return self._terms(logits, batch)

    def floors(self) -> Mapping[str, float]:
        """The mIoU of a model that calls everything background."""
        return {"miou": 0.08}

    def labels(self, batch: Batch) -> Labels:
        """(N, size, size) labels 0 .. 10, and `IGNORE`."""
        return Labels(batch["label"], CLASSES, IGNORE)

    def _terms(self, logits: Tensor, batch: Batch) -> Terms:
        # logits: (N, 11, H, W) -> (N * H * W, 11), a view where memory is channels_last. On CUDA the sum over such
        # rows is deterministic, the sum over images is not.
        rows = logits.permute(0, 2, 3, 1).flatten(0, 2)
        # A sum of tens of thousands of losses needs more than the 8 bits of bfloat16.
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        total = F.cross_entropy(rows, batch["label"].flatten(), ignore_index=IGNORE, reduction="sum")
        return {"cross_entropy": Term(total, self.counts(batch)["cross_entropy"])}
