"""Handwritten digits on a coloured canvas: the data set of the `digit_scenes` recipe."""

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

TRIES = 8

# Ink from 0 to 255: a pixel below INK_EDGE is background, one from INK_CORE on is digit, between them is the border.
INK_EDGE, INK_CORE = 32, 96


class Glyphs(NamedTuple):
    """Digit images of one split, upscaled once.

    Attributes:
        ink: one (images, side, side) array of uint8 for each side in `GLYPH_SIDES`.
        digits: (images,) the digit that each image shows, 0 .. 9.
    """

    ink: tuple[NDArray[np.uint8], ...]
    digits: NDArray[np.int64]


def load_glyphs() -> tuple[Glyphs, Glyphs]:
    """The training and the validation glyphs: every fifth of scikit-learn's 1797 digit images validates.

    Raises:
        UserError: scikit-learn is not installed.
    """
    require_sklearn()
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    ink = [_upscale(images, side) for side in GLYPH_SIDES]
    held_out = np.arange(len(digits)) % 5 == 0
    train, val = (Glyphs(tuple(level[part] for level in ink), digits[part]) for part in (~held_out, held_out))
    return train, val


def require_sklearn() -> None:
    """Refuse to go on without scikit-learn, whose package brings the digits.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("sklearn") is None:
        raise UserError(
            explain(
                "the recipe digit_scenes needs the handwritten digits of scikit-learn, which is not installed",
                next_step="pip install scikit-learn, or take recipe=points, which needs nothing more",
            )
        )


def _upscale(images: NDArray[np.float64], side: int) -> NDArray[np.uint8]:
    # images: (count, 64) with values 0 .. 16
    small = torch.from_numpy(images).float().view(-1, 1, 8, 8) * (255 / 16)
    # One empty pixel around it, so that the border of a digit is whole on every side.
    large = F.interpolate(F.pad(small, (1, 1, 1, 1)), size=(side, side), mode="bicubic")
    # large: (count, 1, side, side)
    return large[:, 0].round().clamp(0, 255).to(torch.uint8).numpy()


class DigitSceneSet(Dataset[dict[str, Tensor]]):
    """Scenes with digits and their per-pixel labels; scene `i` is a function of (seed, i) alone.

    A sample is `{"image": (3, size, size) float32 in about -1 .. 1, "label": (size, size) int64}`, labels 0 .. 10
    and `IGNORE`.

    Args:
        glyphs: the digits to draw from.
        scenes: how many scenes there are.
        size: side of the image in px, at least the largest of `GLYPH_SIDES`.
        digits_per_scene: most digits in a scene; each has between one and this many, the later ones on top.
        seed: another seed gives other scenes. Give each split its own.
        augment: move, tint and add noise to each scene. The draws come from torch's global random generator, so that
            whoever seeds it per sample (the runtime does) decides what a sample looks like.
    """

    def __init__(
        self, glyphs: Glyphs, scenes: int, size: int, digits_per_scene: int, seed: int, augment: bool
    ) -> None:
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
            tint = 1 + 0.3 * (torch.rand(3, 1, 1) - 0.5)
            pixels = pixels * tint + 0.05 * torch.randn(pixels.shape)
        return {"image": pixels, "label": torch.from_numpy(label[cut]).long()}

    def draw(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """The whole canvas of a scene, side = size + 2 * MAX_SHIFT: (side, side, 3) colours 0 .. 1, (side, side) labels."""
        rng = np.random.default_rng((self.seed, index))
        side = self.size + 2 * MAX_SHIFT
        # Digits are lighter than their canvas or darker, by the toss of a coin.
        paper, pen = (0.0, 0.55)
        image = _texture(rng, side, paper)
        label = np.zeros((side, side), np.uint8)
        for _ in range(rng.integers((self.digits_per_scene + 1) // 2, self.digits_per_scene + 1)):
            self._place(rng, image, label, pen)
        return image, label

    def _place(
        self, rng: np.random.Generator, image: NDArray[np.float32], label: NDArray[np.uint8], pen: float
    ) -> None:
        which = int(rng.integers(len(self.glyphs.digits)))
        ink = self.glyphs.ink[rng.integers(len(GLYPH_SIDES))][which]
        for top, left in rng.integers(0, len(label) - len(ink) + 1, (TRIES, 2)):
            box = (slice(top, top + len(ink)), slice(left, left + len(ink)))
            if not label[box].any():
                break
        else:
            return
        opacity = (ink * np.float32(1 / 255))[..., None]
        colour = _colour(rng, pen)
        image[box] += opacity * (colour - image[box])
        label[box][ink >= INK_EDGE] = IGNORE
        label[box][ink >= INK_CORE] = 1 + self.glyphs.digits[which]


def _texture(rng: np.random.Generator, side: int, low: float) -> NDArray[np.float32]:
    """A wave between two colours, its direction, length and phase at random: (side, side, 3)."""
    along = np.arange(side, dtype=np.float32)
    down, across = rng.uniform(-0.4, 0.4, 2).astype(np.float32)
    phase = np.float32(rng.uniform(0, 2 * np.pi))
    wave = 0.5 + 0.5 * np.sin(down * along[:, None] + across * along + phase)
    first, second = _colour(rng, low), _colour(rng, low)
    return first + wave[..., None] * (second - first)


def _colour(rng: np.random.Generator, low: float) -> NDArray[np.float32]:
    """Three channels between `low` and `low + 0.45`: (3,)."""
    return (low + 0.45 * rng.random(3)).astype(np.float32)
