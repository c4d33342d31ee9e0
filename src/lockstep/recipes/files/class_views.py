"""A picture of a class as a model sees it: a random part in training, the middle in evaluation, always of one size."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor

from lockstep.recipes.files.images import in_colour, opened, swaps_sides, turn_of
from lockstep.recipes.files.pixels import draws, jittered, normalised

Box = tuple[float, float, float, float]

# How often a part is drawn that fits before the middle is taken.
TRIES = 10
RATIO = 4 / 3
"""A random part is at most this much wider than high, or higher than wide."""


class ClassView(Protocol):
    """Makes what a model sees of a file."""

    def __call__(self, path: Path) -> Tensor:
        """(3, side, side) float32.

        Raises:
            BadFile: the file cannot be read.
        """


@dataclass(frozen=True)
class RandomPart:
    """A part of random place, size and shape, mirrored, in other colours; draws are from torch's global generator.

    Attributes:
        side: of the result in px.
        scale: the least and the greatest share of the picture's area.
        flip: how often it is mirrored, 0 .. 1.
        jitter: strength of the change of colours, 0 .. 1.
    """

    side: int
    scale: tuple[float, float]
    flip: float
    jitter: float

    def __call__(self, path: Path) -> Tensor:
        """Another part at each call."""
        mirror, across, down, *jitter = draws(6)
        shapes = torch.rand(TRIES, 2, dtype=torch.float64).tolist()

        def part(width: int, height: int) -> Box:
            cut_width, cut_height = self._shape(width, height, shapes)
            left, top = across * (width - cut_width), down * (height - cut_height)
            return left, top, left + cut_width, top + cut_height

        pixels = normalised(jittered(read_part(path, part, self.side), self.jitter, jitter))
        return pixels.flip(-1) if mirror < self.flip else pixels

    def _shape(self, width: int, height: int, shapes: list[list[float]]) -> tuple[float, float]:
        """Width and height of the part in px: the first drawn one that fits into the picture."""
        low, high = self.scale
        for draw_area, draw_ratio in shapes:
            area, ratio = (low + (high - low) * draw_area) * width * height, RATIO ** (2 * draw_ratio - 1)
            cut = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if cut[0] <= width and cut[1] <= height:
                return cut
        side = float(min(width, height))
        return side, side


@dataclass(frozen=True)
class Middle:
    """The largest square in the middle, a margin less.

    Attributes:
        side: of the result in px.
        share: how much of the square's side is seen, above 0 and at most 1.
    """

    side: int
    share: float

    def __call__(self, path: Path) -> Tensor:
        """The same part at each call."""

        def part(width: int, height: int) -> Box:
            half = min(width, height) * self.share / 2
            return width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half

        return normalised(read_part(path, part, self.side))


class PartOf(Protocol):
    """Chooses a part of a picture of a given size."""

    def __call__(self, width: int, height: int) -> Box:
        """Left, top, right, bottom in px."""


def read_part(path: Path, part: PartOf, side: int) -> Image.Image:
    """A part of a picture as the camera held it, at another size, in RGB.

    A JPEG of which a small picture is wanted is decoded at a half, a quarter or an eighth of its size.

    Args:
        path: the file.
        part: chooses the part, of the turned picture.
        side: of the result in px.

    Raises:
        BadFile: the file cannot be read.
    """
    with opened(path) as image:
        turn = turn_of(image)
        sizes = image.size[::-1] if swaps_sides(turn) else image.size
        box = part(*sizes)
        factor = max(side / (box[2] - box[0]), side / (box[3] - box[1]))
        image.draft(None, (math.ceil(image.width * factor), math.ceil(image.height * factor)))
        picture = in_colour(image, path)
        if turn is not None:
            picture = picture.transpose(turn)
        x, y = picture.width / sizes[0], picture.height / sizes[1]
        scaled = (box[0] * x, box[1] * y, min(box[2] * x, picture.width), min(box[3] * y, picture.height))
        return picture.resize((side, side), Image.Resampling.BILINEAR, box=scaled)
