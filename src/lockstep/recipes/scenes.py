"""Handwritten digits on a coloured canvas: the data set of the `digit_scenes` recipe."""

from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from lockstep.core.errors import UserError, explain

CLASSES = 11
"""0 is the background, 1 .. 10 are the digits 0 .. 9."""
IGNORE = 255
"""The label of a digit's border, where nobody can say which pixel still belongs to it."""
GLYPH_SIDES = (16, 18, 20, 22)
"""The sizes in px at which a digit may appear, its empty margin included."""
MAX_SHIFT = 4
"""Training scenes are moved by at most this many px in each direction."""

# How often a free place for a digit is looked for before the scene goes without it.
TRIES = 8
# The lowest value of a colour channel of the canvas and of a digit, and how far above it a channel may be.
DARK, LIGHT, SPREAD = 0.0, 0.55, 0.45
# Ink from 0 to 255: a pixel from INK_CORE on is digit. Beside it, and from INK_EDGE on, nobody can say: the border.
INK_EDGE, INK_CORE = 32, 96


class Glyphs(NamedTuple):
    """Digit images of one split, upscaled once.

    Attributes:
        ink: one (images, side, side) array of uint8 for each side in `GLYPH_SIDES`, 0 no ink, 255 full.
        labels: arrays like those of `ink`: 0 outside of the digit, its class inside, `IGNORE` on the border.
        digits: (images,) the digit that each image shows, 0 .. 9.
    """

    ink: tuple[NDArray[np.uint8], ...]
    labels: tuple[NDArray[np.uint8], ...]
    digits: NDArray[np.int64]


@cache
def load_glyphs() -> tuple[Glyphs, Glyphs]:
    """The training and the validation glyphs: every fifth of scikit-learn's 1797 digit images validates.

    Raises:
        UserError: scikit-learn is not installed.
    """
    require_sklearn()
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    held_out = np.arange(len(digits)) % 5 == 0
    return _glyphs(images[~held_out], digits[~held_out]), _glyphs(images[held_out], digits[held_out])


def require_sklearn(recipe: str = "digit_scenes") -> None:
    """Refuse to go on without scikit-learn, whose package brings the digits.

    Args:
        recipe: that needs it.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("sklearn") is None:
        raise UserError(
            explain(
                f"the recipe {recipe} needs the handwritten digits of scikit-learn, which is not installed",
                next_step="pip install scikit-learn, or take recipe=points, which needs nothing more",
            )
        )


def _glyphs(images: NDArray[np.float64], digits: NDArray[np.int64]) -> Glyphs:
    ink = tuple(_upscale(images, side) for side in GLYPH_SIDES)
    return Glyphs(ink, tuple(_label(level, digits) for level in ink), digits)


def _upscale(images: NDArray[np.float64], side: int) -> NDArray[np.uint8]:
    # images: (count, 64) with values 0 .. 16
    small = torch.from_numpy(images).float().view(-1, 1, 8, 8) * (255 / 16)
    # One empty pixel around it, so that the border of a digit is whole on every side.
    large = F.interpolate(F.pad(small, (1, 1, 1, 1)), size=(side, side), mode="bicubic")
    # large: (count, 1, side, side)
    return large[:, 0].round().clamp(0, 255).to(torch.uint8).numpy()


def _label(ink: NDArray[np.uint8], digits: NDArray[np.int64]) -> NDArray[np.uint8]:
    core = torch.from_numpy(ink >= INK_CORE)
    beside = F.max_pool2d(core[:, None].float(), 3, stride=1, padding=1)[:, 0] > 0
    border = beside | torch.from_numpy(ink >= INK_EDGE)
    classes = torch.from_numpy(digits + 1)[:, None, None]
    # label: (count, side, side)
    label = torch.where(core, classes, torch.where(border, IGNORE, 0))
    return label.to(torch.uint8).numpy()


class DigitSceneSet(Dataset[dict[str, Tensor]]):
    """Scenes with digits and their per-pixel labels; scene `i` is a function of (seed, i) alone.

    A sample is `{"image": (3, size, size) float32 in about -1 .. 1, "label": (size, size) int64}`, labels 0 .. 10
    and `IGNORE`.

    Args:
        glyphs: the digits to draw from.
        scenes: how many scenes there are.
        size: side of the image in px, at least the largest of `GLYPH_SIDES`.
        digits_per_scene: most digits in a scene. Each draws a number from half of it up; one that finds no free place
            is left out.
        seed: another seed gives other scenes. Give each split its own.
        augment: move, tint and add noise to each scene. The draws come from torch's global random generator, so that
            whoever seeds it per sample (the runtime does) decides what a sample looks like.
    """

    def __init__(self, glyphs: Glyphs, scenes: int, size: int, digits_per_scene: int, seed: int, augment: bool) -> None:
        self.glyphs = glyphs
        self.scenes = scenes
        self.size = size
        self.digits_per_scene = digits_per_scene
        self.seed = seed
        self.augment = augment

    def __len__(self) -> int:
        return self.scenes

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < self.scenes:
            raise IndexError(f"scene {index} of {self.scenes}")
        image, label = self.draw(index)
        # The canvas is larger than the image by MAX_SHIFT on every side: a shift is another cut of it.
        top, left = torch.randint(0, 2 * MAX_SHIFT + 1, (2,)).tolist() if self.augment else (MAX_SHIFT, MAX_SHIFT)
        cut = (slice(top, top + self.size), slice(left, left + self.size))
        pixels = torch.from_numpy(image[cut]).permute(2, 0, 1) * 2 - 1
        if self.augment:
            tint = 1 + 0.3 * (torch.rand_like(pixels[:, :1, :1]) - 0.5)
            pixels = pixels * tint + 0.05 * torch.randn_like(pixels)
        return {"image": pixels, "label": torch.from_numpy(label[cut]).long()}

    def draw(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """The whole canvas, MAX_SHIFT px wider on each side: (side, side, 3) colours 0 .. 1, (side, side) labels."""
        rng = np.random.default_rng((self.seed, index))
        side = self.size + 2 * MAX_SHIFT
        image = _texture(rng, side)
        label = np.zeros((side, side), np.uint8)
        for _ in range(rng.integers((self.digits_per_scene + 1) // 2, self.digits_per_scene + 1)):
            self._place(rng, image, label)
        return image, label

    def _place(self, rng: np.random.Generator, image: NDArray[np.float32], label: NDArray[np.uint8]) -> None:
        which, level = rng.integers(len(self.glyphs.digits)), rng.integers(len(GLYPH_SIDES))
        ink, glyph_label = self.glyphs.ink[level][which], self.glyphs.labels[level][which]
        for top, left in rng.integers(0, len(label) - len(ink) + 1, (TRIES, 2)):
            box = (slice(top, top + len(ink)), slice(left, left + len(ink)))
            if not label[box].any():
                break
        else:
            return
        opacity = (ink * np.float32(1 / 255))[..., None]
        colour = _colour(rng, LIGHT)
        image[box] += opacity * (colour - image[box])
        # The place is free: nothing is overwritten.
        label[box] = glyph_label


def _texture(rng: np.random.Generator, side: int) -> NDArray[np.float32]:
    """A wave between two colours, its direction, length and phase at random: (side, side, 3)."""
    along = np.arange(side, dtype=np.float32)
    down, across = rng.uniform(-0.4, 0.4, 2).astype(np.float32)
    phase = np.float32(rng.uniform(0, 2 * np.pi))
    wave = 0.5 + 0.5 * np.sin(down * along[:, None] + across * along + phase)
    first, second = _colour(rng, DARK), _colour(rng, DARK)
    picture: NDArray[np.float32] = first + wave[..., None] * (second - first)
    return picture


def _colour(rng: np.random.Generator, low: float) -> NDArray[np.float32]:
    """Three channels, each between `low` and `low + SPREAD`: (3,)."""
    return (low + SPREAD * rng.random(3)).astype(np.float32)
