"""A small residual network for pictures, and its trunk for others to build on."""

from collections.abc import Sequence

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a short cut: (N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = conv(inputs, outputs, 3, stride)
        self.second = conv(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.short = nn.Identity() if same else conv(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """The features of the next layer."""
        y: Tensor = self.relu(self.second(self.relu(self.first(x))) + self.short(x))
        return y


def conv(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the size but for its stride, and BatchNorm, which makes a bias dead weight."""
    convolution = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Trunk(nn.Module):
    """The layers of a residual network without its classifier.

    Args:
        width: channels of the stem and of the first stage; they double at each further one.
        blocks: residual blocks of each stage. The first of every stage but the first halves the picture.
        stem: stride of the stem, a 3x3 convolution: 1 for small pictures, 2 for large ones.
        channels: of the picture.
    """

    def __init__(self, width: int, blocks: Sequence[int], stem: int = 2, channels: int = 3) -> None:
        super().__init__()
        self.widths = [width, *(width * 2**stage for stage in range(len(blocks)))]
        self.stem = nn.Sequential(conv(channels, width, 3, stem), nn.ReLU(inplace=True))
        self.stages = nn.ModuleList()
        for stage, count in enumerate(blocks):
            inputs, outputs = self.widths[stage : stage + 2]
            first = BasicBlock(inputs, outputs, stride=2 if stage else 1)
            self.stages.append(nn.Sequential(first, *(BasicBlock(outputs, outputs) for _ in range(count - 1))))

    def forward(self, image: Tensor) -> list[Tensor]:
        """The features of each stage, each but the first at half of the size of the one before."""
        x = self.stem(image)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class ResNet(nn.Module):
    """Classifier of pictures: (N, channels, H, W) floats -> (N, classes) logits.

    Args:
        classes: number of classes.
        width, blocks, stem, channels: as for `Trunk`.
    """

    def __init__(self, classes: int, width: int, blocks: Sequence[int], stem: int = 2, channels: int = 3) -> None:
        super().__init__()
        self.trunk = Trunk(width, blocks, stem, channels)
        self.head = nn.Linear(self.trunk.widths[-1], classes)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of every picture."""
        logits: Tensor = self.head(self.trunk(image)[-1].mean((2, 3)))
        return logits
