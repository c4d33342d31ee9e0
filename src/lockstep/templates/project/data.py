"""The data set: pictures of four shapes, drawn when they are asked for. Replace it with your own.

A data set has a length and returns sample `index`. It knows nothing of batches, shuffling or ranks.
"""

import math

import torch
from torch import Tensor
from torch.utils.data import Dataset

CLASSES = ("disc", "ring", "square", "triangle")


class Shapes(Dataset[dict[str, Tensor]]):
    """`length` noisy pictures, others for another seed: `{"image": (3, size, size) float32, "label": () int64}`."""

    def __init__(self, length: int, size: int, seed: int, augment: bool = False) -> None:
        self.length, self.size, self.seed, self.augment = length, size, seed, augment
        line = torch.linspace(-1, 1, size, dtype=torch.float32)
        self.y, self.x = torch.meshgrid(line, line, indexing="ij")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Picture `index`, always the same one; with `augment` another version of it in each epoch."""
        label = index % len(CLASSES)
        image = self.picture(label, torch.Generator().manual_seed(self.seed * 1_000_003 + index))
        if self.augment:
            # Draw from torch's own generator: it is seeded by (seed, epoch, index) before each sample, so a picture is
            # augmented in the same way on any number of ranks and workers.
            image = image + 0.1 * torch.randn_like(image)
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
        return {"image": image, "label": torch.tensor(label)}

    def picture(self, label: int, draw: torch.Generator) -> Tensor:
        """A shape somewhere, in some size, direction and colour."""
        shift_x, shift_y, turn, scale = torch.rand(4, generator=draw, dtype=torch.float32).tolist()
        radius, angle = 0.45 + 0.35 * scale, 2 * math.pi * turn
        x, y = (self.x - 0.6 * shift_x + 0.3) / radius, (self.y - 0.6 * shift_y + 0.3) / radius
        x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
        away = torch.hypot(x, y)
        inside = (
            away < 0.9,
            (away < 1.0) & (away > 0.55),
            torch.maximum(x.abs(), y.abs()) < 0.75,
            torch.stack([y, -0.5 * y + 0.87 * x, -0.5 * y - 0.87 * x]).amax(0) < 0.5,
        )[label]
        ink, paper = torch.rand(2, 3, 1, 1, generator=draw, dtype=torch.float32)
        noise = torch.randn(3, self.size, self.size, generator=draw, dtype=torch.float32)
        return torch.where(inside, 0.5 + 0.5 * ink, -0.5 - 0.5 * paper) + 0.2 * noise
