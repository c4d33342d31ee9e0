"""Segmentation of a folder of pictures in the layout of Pascal VOC."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.core.errors import UserError, explain
from lockstep.recipes.files.bad import require_pillow, shown
from lockstep.recipes.files.images import Exif
from lockstep.recipes.resunet import ResUNet
from lockstep.recipes.unet import UNet
from lockstep.runtime.loss import Count, Term, Terms
from lockstep.runtime.recipe import Labels, Recipe

if TYPE_CHECKING:
    from torchmetrics import Metric

    from lockstep.recipes.files.scene_views import SceneView
    from lockstep.recipes.files.voc_set import VocSet

Batch = Mapping[str, Tensor]


class Voc(Recipe):
    """Say for every pixel of a picture which class it belongs to.

    A model that gives every pixel one class reaches a mean intersection over union (mIoU) of at most 1 / classes.

    Args:
        root: folder that holds JPEGImages/NAME.jpg, SegmentationClass/NAME.png (class numbers, with or without a
            palette) and ImageSets/Segmentation/SPLIT.txt (one NAME a line).
        train_split: list of the training samples.
        val_split: list of the validation samples; null for none.
        classes: labels of masks are 0 .. classes - 1.
        ignore: a further label, of pixels that do not count.
        crop: side of a training sample in px: a random part of the scaled picture, padded where it is smaller.
        scale: the least and the greatest random factor of a training picture's size.
        flip: share of the training pictures that are mirrored.
        jitter: strength of random changes of brightness, contrast and saturation, 0 .. 1; 0 for none.
        eval_size: side of a validation sample in px: the whole picture, padded; larger ones are made smaller to fit.
        exif: whether pictures are turned as the camera says: apply, ignore, or fit: as the mask's size tells.
        model: resunet (a U-Net on a residual encoder) or unet.
        width: channels of the model's first level.
        depth: how often the model halves the picture; crop and eval_size are multiples of 2**depth.
        blocks: residual blocks of each level of a resunet.

    Raises:
        UserError: an option that no data set or model can have, or Pillow is not installed.
    """

    def __init__(
        self,
        root: str,
        train_split: str = "train",
        val_split: str | None = "val",
        classes: int = 21,
        ignore: int = 255,
        crop: int = 320,
        scale: tuple[float, float] = (0.5, 2.0),
        flip: float = 0.5,
        jitter: float = 0.3,
        eval_size: int = 512,
        exif: Exif = "fit",
        model: Literal["resunet", "unet"] = "resunet",
        width: int = 32,
        depth: int = 5,
        blocks: int = 2,
    ) -> None:
        require_pillow("voc")
        self.root = Path(root).expanduser()
        self.train_split, self.val_split = train_split, val_split
        self.classes, self.ignore, self.exif = classes, ignore, exif
        self.crop, self.scale, self.flip, self.jitter, self.eval_size = crop, scale, flip, jitter, eval_size
        self.kind, self.width, self.depth, self.blocks = model, width, depth, blocks
        self._check()

    def _check(self) -> None:
        stride = 2**self.depth
        rules = {
            f"classes={self.classes}": 2 <= self.classes <= 256,
            f"ignore={self.ignore}": self.classes <= self.ignore <= 255,
            f"depth={self.depth}": self.depth >= 1,
            f"width={self.width}": self.width >= 1,
            f"blocks={self.blocks}": self.blocks >= 1,
            f"crop={self.crop}": self.crop >= 1 and self.crop % stride == 0,
            f"eval_size={self.eval_size}": self.eval_size >= 1 and self.eval_size % stride == 0,
            f"scale={list(self.scale)}": 0 < self.scale[0] <= self.scale[1],
            f"flip={self.flip}": 0 <= self.flip <= 1,
            f"jitter={self.jitter}": 0 <= self.jitter <= 1,
        }
        if wrong := [option for option, holds in rules.items() if not holds]:
            must = (
                f"2 <= classes <= ignore <= 255; crop and eval_size multiples of 2**depth ({stride}); 0 < scale[0] <= "
                "scale[1]; flip and jitter in 0 .. 1; depth, width and blocks at least 1"
            )
            raise UserError(explain(f"options that do not fit: {', '.join(wrong)}", must, "options of the recipe voc"))

    def model(self) -> nn.Module:
        """A new network: (N, 3, H, W) -> (N, classes, H, W), sides multiples of 2**depth."""
        if self.kind == "unet":
            return UNet(self.classes, width=self.width, depth=self.depth)
        return ResUNet(self.classes, self.width, [self.blocks] * self.depth)

    def train_data(self) -> "VocSet":
        """Random parts, in another way in each epoch."""
        from lockstep.recipes.files.scene_views import RandomScene

        view = RandomScene(self.crop, self.scale, self.flip, self.jitter, self.ignore)
        data = self._set(self.train_split, view)
        if self.val_split and self.val_split != self.train_split:
            self._check_overlap(data, self.val_split)
        return data

    def val_data(self) -> "VocSet | None":
        """Whole pictures."""
        from lockstep.recipes.files.scene_views import WholeScene

        return self._set(self.val_split, WholeScene(self.eval_size, self.ignore)) if self.val_split else None

    def _set(self, split: str, view: "SceneView") -> "VocSet":
        from lockstep.recipes.files.voc_set import VocSet

        return VocSet(self.root, split, self.classes, self.ignore, self.exif, view)

    def _check_overlap(self, train: "VocSet", val_split: str) -> None:
        """A model that is measured on what it was trained on looks better than it is."""
        from lockstep.recipes.files.splits import read_split
        from lockstep.recipes.files.voc_set import LISTS

        both = sorted(set(train.names) & set(read_split(self.root / LISTS, val_split)))
        if both:
            seen = f"{len(both)} samples are in {self.train_split}.txt and in {val_split}.txt, such as {both[0]!r}"
            must = "no sample is trained on and validated with"
            where, next_step = shown(self.root), "choose other lists by options.train_split and options.val_split"
            raise UserError(explain(seen, must, where, next_step))

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        """Cross entropy of every pixel that is not ignored."""
        return self._terms(model(batch["image"]), batch)

    def counts(self, batch: Batch) -> Mapping[str, Count]:
        """The number of pixels that are not ignored."""
        return {"cross_entropy": (batch["label"] != self.ignore).sum()}

    def metrics(self) -> "Mapping[str, Metric]":
        """Both keep integer counts (a confusion matrix), so that they are the same at every number of ranks."""
        from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

        # validate_args asks for the unique values of every batch; the data set has checked them.
        return {
            "miou": MulticlassJaccardIndex(self.classes, ignore_index=self.ignore, validate_args=False),
            "accuracy": MulticlassAccuracy(
                self.classes, average="micro", ignore_index=self.ignore, validate_args=False
            ),
        }

    def evaluate(self, model: nn.Module, batch: Batch, metrics: "Mapping[str, Metric]") -> Terms:
        """One forward for the loss and both metrics."""
        logits = model(batch["image"])
        predicted, label = logits.argmax(dim=1), batch["label"].long()
        for metric in metrics.values():
            metric.update(predicted, label)
        return self._terms(logits, batch)

    def floors(self) -> Mapping[str, float]:
        """What a model that gives every pixel one class can reach at most."""
        return {"miou": 1 / self.classes}

    def labels(self, batch: Batch) -> Labels:
        """(N, side, side) labels 0 .. classes - 1, and the ignored one."""
        return Labels(batch["label"], self.classes, self.ignore)

    def _terms(self, logits: Tensor, batch: Batch) -> Terms:
        # logits: (N, classes, H, W) -> (N * H * W, classes), a view where memory is channels_last. On CUDA the sum over
        # such rows is deterministic, the sum over images is not.
        rows = logits.permute(0, 2, 3, 1).flatten(0, 2)
        # A sum of tens of thousands of losses needs more than the 8 bits of bfloat16.
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        label = batch["label"].flatten().long()
        total = F.cross_entropy(rows, label, ignore_index=self.ignore, reduction="sum")
        return {"cross_entropy": Term(total, self.counts(batch)["cross_entropy"])}
