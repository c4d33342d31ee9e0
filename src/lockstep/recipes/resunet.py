"""A U-Net whose encoder is a residual network: deeper than `unet.py` at the same cost, since it begins at half size."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lockstep.recipes.resnet import Trunk
from lockstep.recipes.unet import ConvBlock


class ResUNet(nn.Module):
    """Per-pixel classifier: (N, channels, H, W) floats -> (N, classes, H, W) logits.

    Args:
        classes: number of classes.
        width: channels of the first stage; they double at each further one.
        blocks: residual blocks of each stage. H and W must be multiples of 2**len(blocks).
        channels: of the picture.
    """

    def __init__(self, classes: int, width: int, blocks: Sequence[int], channels: int = 3) -> None:
        super().__init__()
        self.trunk = Trunk(width, blocks, stem=2, channels=channels)
        widths = self.trunk.widths[1:]
        upward = list(reversed(range(len(widths) - 1)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2) for i in upward)
        self.merge = nn.ModuleList(ConvBlock(2 * widths[i], widths[i]) for i in upward)
        self.head = nn.ConvTranspose2d(widths[0], classes, 2, stride=2)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of every pixel: (N, channels, H, W) -> (N, classes, H, W)."""
        *skips, x = self.trunk(image)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        logits: Tensor = self.head(x)
        return logits
