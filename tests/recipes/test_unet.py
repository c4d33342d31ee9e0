import pytest
import torch
from torch import nn

from lockstep.recipes.unet import UNet


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_logits_have_the_size_of_the_image(depth: int) -> None:
    model = UNet(classes=5, channels=2, width=4, depth=depth)
    assert model(torch.zeros(2, 2, 16, 24)).shape == (2, 5, 16, 24)


def test_channels_last_goes_through() -> None:
    model = UNet(classes=3, width=4, depth=2).to(memory_format=torch.channels_last)
    image = torch.zeros(2, 3, 16, 16).to(memory_format=torch.channels_last)
    assert model(image).is_contiguous(memory_format=torch.channels_last)


def test_every_weight_gets_a_gradient() -> None:
    model = UNet(classes=3, width=4, depth=2)
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    # The bias of an up-convolution goes through a convolution and BatchNorm beside the skip: it does count.
    assert idle == []


def test_is_one_graph_for_the_compiler() -> None:
    # The eager backend traces and checks without a C++ compiler.
    model = UNet(classes=3, width=4, depth=2).eval()
    image = torch.randn(1, 3, 16, 16)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(image), model(image))


def test_no_convolution_before_batchnorm_has_a_bias() -> None:
    block = UNet(classes=3, width=4, depth=1).stem
    assert [layer.bias for layer in block if isinstance(layer, nn.Conv2d)] == [None, None]
