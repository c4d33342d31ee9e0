"""Colour jitter, and from a picture to numbers: what segmentation and classification have in common."""

import numpy as np
import torch
from PIL import ImageEnhance
from PIL.Image import Image
from torch import Tensor

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the channels red, green, blue over ImageNet, values 0 .. 1. Padding is MEAN, which is 0 in what a model sees."""


def draws(count: int) -> list[float]:
    """Numbers in 0 .. 1 from torch's global generator, the same whatever the default type is."""
    return torch.rand(count, dtype=torch.float64).tolist()


def normalised(image: Image) -> Tensor:
    """A picture in RGB as a model sees it: (3, height, width) float32, about -2 .. 2."""
    # A copy: torch warns of memory that may not be written.
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    mean, std = torch.tensor(MEAN, dtype=torch.float32), torch.tensor(STD, dtype=torch.float32)
    return pixels.mul_((1 / (255 * std))[:, None, None]).sub_((mean / std)[:, None, None])


def jittered(image: Image, strength: float, drawn: list[float]) -> Image:
    """Another brightness, contrast and saturation.

    Args:
        image: in RGB.
        strength: each factor lies in 1 - strength .. 1 + strength; 0 changes nothing.
        drawn: three numbers in 0 .. 1.
    """
    if not strength:
        return image
    brightness, contrast, saturation = (1 + strength * (2 * draw - 1) for draw in drawn)
    image = ImageEnhance.Brightness(image).enhance(brightness)
    image = ImageEnhance.Contrast(image).enhance(contrast)
    return ImageEnhance.Color(image).enhance(saturation)
