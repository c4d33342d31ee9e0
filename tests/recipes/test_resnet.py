import pytest
import torch
from torch import nn

from lockstep.recipes.resnet import BasicBlock, ResNet, Trunk


def test_stages_halve_the_picture_and_double_the_channels() -> None:
    features = Trunk(4, [1, 2, 1], stem=2)(torch.randn(2, 3, 32, 32))
    assert [tuple(feature.shape) for feature in features] == [(2, 4, 16, 16), (2, 8, 8, 8), (2, 16, 4, 4)]
    assert Trunk(4, [1], stem=1)(torch.randn(1, 3, 32, 32))[0].shape == (1, 4, 32, 32)


@pytest.mark.parametrize(("outputs", "stride"), [(4, 1), (8, 1), (4, 2), (8, 2)])
def test_a_block_has_a_short_cut(outputs: int, stride: int) -> None:
    block = BasicBlock(4, outputs, stride)
    x = torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        block.second[1].weight.zero_()  # type: ignore[union-attr, operator]  # the last BatchNorm
    assert torch.equal(block(x), torch.relu(block.short(x)))
    assert isinstance(block.short, nn.Identity) == ((outputs, stride) == (4, 1))


def test_the_classifier_takes_pictures_of_any_size() -> None:
    model = ResNet(7, width=4, blocks=[1, 1])
    assert model(torch.randn(2, 3, 20, 33)).shape == (2, 7)
    assert all(convolution.bias is None for convolution in model.modules() if isinstance(convolution, nn.Conv2d))


def test_signals_keep_their_size_when_it_is_new() -> None:
    torch.manual_seed(0)
    features = Trunk(16, [2, 2, 2, 2], stem=1)(torch.randn(8, 3, 32, 32))
    assert all(0.3 < float(feature.detach().std()) < 4 for feature in features)
