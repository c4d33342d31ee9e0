"""A U-Net: an encoder that halves the image, a decoder that doubles it back, and skips between equal sizes."""

import torch
from torch import Tensor, nn


class ConvBlock(nn.Sequential):
    """Two 3x3 convolutions, each with BatchNorm and ReLU: (N, inputs, H, W) -> (N, outputs, H, W)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            # BatchNorm subtracts the mean, so a bias before it would only be dead weight.
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Per-pixel classifier: (N, channels, H, W) floats -> (N, classes, H, W) logits.

    Args:
        classes: number of classes.
        channels: channels of the image.
        width: channels at full resolution; they double at each level down.
        depth: how often the image is halved. H and W must be multiples of 2**depth.

    Every convolution and BatchNorm is initialised as torch does it by default.
    """

    def __init__(self, classes: int, channels: int = 3, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.stem = ConvBlock(channels, width)
        self.down = nn.ModuleList(ConvBlock(widths[i], widths[i + 1]) for i in range(depth))
        upward = list(reversed(range(depth)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2) for i in upward)
        self.merge = nn.ModuleList(ConvBlock(2 * widths[i], widths[i]) for i in upward)
        self.head = nn.Conv2d(width, classes, 1)
        self.halve = nn.MaxPool2d(2)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of every pixel: (N, channels, H, W) -> (N, classes, H, W)."""
        features = self.stem(image)
        skips = []
        for block in self.down:
            skips.append(features)
            features = block(self.halve(features))
        for up, merge in zip(self.up, self.merge, strict=True):
            features = merge(torch.cat([skips.pop(), up(features)], dim=1))
        logits: Tensor = self.head(features)
        return logits
