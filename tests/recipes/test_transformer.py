import math

import pytest
import torch
from torch import nn

from lockstep.recipes.transformer import Block, Transformer


def small() -> Transformer:
    torch.manual_seed(0)
    return Transformer(vocabulary=17, width=8, layers=3, heads=2, context=12)


def test_logits_of_every_place() -> None:
    assert small()(torch.zeros(4, 9, dtype=torch.int64)).shape == (4, 9, 17)


def test_a_place_sees_itself_and_what_came_before() -> None:
    model = small().double()
    ids = torch.arange(12).reshape(1, 12)
    for place in (0, 5, 11):
        other = ids.clone()
        other[0, place] = 16
        changed = (model(ids) != model(other)).any(dim=2)[0]
        assert changed.tolist() == [False] * place + [True] * (12 - place)


def test_padding_at_the_end_changes_no_gradient() -> None:
    model = small().double()
    ids = torch.arange(8).reshape(2, 4)
    padded = torch.cat([ids, torch.full((2, 5), 3)], dim=1)
    found = []
    for given in (ids, padded):
        model.zero_grad()
        model(given)[:, :4].square().sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)


def test_blocks_are_a_list_and_no_parameter_is_tied() -> None:
    model = small()
    assert isinstance(model.blocks, nn.ModuleList) and all(isinstance(block, Block) for block in model.blocks)
    assert len(list(model.parameters())) == len(list(model.named_parameters(remove_duplicate=False)))


def test_it_starts_as_one_that_knows_nothing() -> None:
    logits = small()(torch.randint(17, (8, 12)))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(17, (96,)))
    assert float(loss.detach()) == pytest.approx(math.log(17), rel=0.02)
