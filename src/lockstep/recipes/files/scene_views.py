"""A picture and its mask as a model sees them: random in training, whole in evaluation, always of one size."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from lockstep.recipes.files.pixels import draws, jittered, normalised

Box = tuple[float, float, float, float]


class SceneView(Protocol):
    """Makes a sample of a picture and its mask."""

    def __call__(self, picture: Image.Image, mask: NDArray[np.uint8]) -> dict[str, Tensor]:
        """`{"image": (3, side, side) float32, "label": (side, side) uint8}`."""


@dataclass(frozen=True)
class RandomScene:
    """A cut of a scaled, mirrored picture in other colours; draws come from torch's global generator.

    Attributes:
        side: of the cut in px. Where the scaled picture is smaller, it lies somewhere in it; the rest is the mean
            colour, its labels `ignore`.
        scale: the least and the greatest factor.
        flip: how often a picture is mirrored, 0 .. 1.
        jitter: strength of the change of colours, 0 .. 1.
        ignore: the label of what is added.
    """

    side: int
    scale: tuple[float, float]
    flip: float
    jitter: float
    ignore: int

    def __call__(self, picture: Image.Image, mask: NDArray[np.uint8]) -> dict[str, Tensor]:
        """A sample, another at each call."""
        factor, across, down, mirror, *jitter = draws(7)
        low, high = self.scale
        factor = low + (high - low) * factor
        width, height = (max(1, round(have * factor)) for have in picture.size)
        left, put_left, cut_width = window(width, self.side, across)
        top, put_top, cut_height = window(height, self.side, down)
        x, y = picture.width / width, picture.height / height
        right, bottom = min((left + cut_width) * x, picture.width), min((top + cut_height) * y, picture.height)
        part, labels = cut(picture, mask, (left * x, top * y, right, bottom), (cut_width, cut_height))
        sample = padded(
            normalised(jittered(part, self.jitter, jitter)), labels, self.side, self.ignore, put_left, put_top
        )
        return {key: value.flip(-1) for key, value in sample.items()} if mirror < self.flip else sample


@dataclass(frozen=True)
class WholeScene:
    """The whole picture at the top left; one that is larger than `side` is made smaller, its mask too.

    Attributes:
        side: of the sample in px.
        ignore: the label of what is added, so that it counts nowhere.
    """

    side: int
    ignore: int

    def __call__(self, picture: Image.Image, mask: NDArray[np.uint8]) -> dict[str, Tensor]:
        """The same sample at each call."""
        factor = min(1.0, self.side / picture.width, self.side / picture.height)
        size = tuple(max(1, round(have * factor)) for have in picture.size)
        part, labels = cut(picture, mask, (0, 0, *picture.size), (size[0], size[1]))
        return padded(normalised(part), labels, self.side, self.ignore)


def window(have: int, want: int, draw: float) -> tuple[int, int, int]:
    """Where to cut and where to put along one side, in px: (first px of the picture, first px of the sample, px).

    Args:
        have: length of the picture.
        want: length of the sample.
        draw: 0 .. 1, decides where.
    """
    place = min(int(draw * (abs(have - want) + 1)), abs(have - want))
    return (place, 0, want) if have >= want else (0, place, have)


def cut(picture: Image.Image, mask: NDArray[np.uint8], box: Box, size: tuple[int, int]) -> tuple[Image.Image, Tensor]:
    """A part of a picture at another size, and its labels: (height, width) uint8.

    Args:
        picture, mask: of one size.
        box: left, top, right, bottom in px of the picture.
        size: width and height of the result; labels are taken from the nearest pixel, never mixed.
    """
    part = picture.resize(size, Image.Resampling.BILINEAR, box=box)
    labels = Image.fromarray(mask).resize(size, Image.Resampling.NEAREST, box=box)
    return part, torch.from_numpy(np.array(labels))


def padded(pixels: Tensor, labels: Tensor, side: int, ignore: int, left: int = 0, top: int = 0) -> dict[str, Tensor]:
    """A sample of side x side px that holds normalised pixels at a place, and nothing else that counts."""
    height, width = labels.shape
    place = (slice(top, top + height), slice(left, left + width))
    image = torch.zeros(3, side, side, dtype=torch.float32)
    label = torch.full((side, side), ignore, dtype=torch.uint8)
    image[:, *place], label[place] = pixels, labels
    return {"image": image, "label": label}
