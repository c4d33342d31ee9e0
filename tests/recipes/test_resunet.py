import torch
from torch import nn

from lockstep.recipes.resunet import ResUNet


def test_every_pixel_gets_a_logit_for_each_class() -> None:
    model = ResUNet(5, width=4, blocks=[1, 1, 1])
    assert model(torch.randn(2, 3, 16, 40)).shape == (2, 5, 16, 40)


def test_every_parameter_is_used() -> None:
    model = ResUNet(3, width=4, blocks=[2, 1])
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_it_learns_a_pattern() -> None:
    torch.manual_seed(0)
    model = ResUNet(2, width=8, blocks=[1, 1])
    image = torch.randn(4, 3, 16, 16)
    label = (image[:, 0] > 0).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
