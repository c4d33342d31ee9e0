"""The digest of what every rank must hold alike."""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from lockstep.trace.progress.same import EVERY, Sameness, sampled_digest


def parameters() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,), ())]
    return [*made, torch.randn(6, generator=generator).to(torch.bfloat16)]


def test_equal_tensors_have_equal_digests_whatever_their_layout() -> None:
    assert sampled_digest(parameters(), 100) == sampled_digest(parameters(), 100)
    turned = [one.t().contiguous().t() if one.dim() == 2 else one for one in parameters()]
    assert sampled_digest(turned, 100) == sampled_digest(parameters(), 100)
    assert sampled_digest([], 1) == sampled_digest([], 2)


@pytest.mark.parametrize("number", range(4))
def test_every_element_gets_its_turn(number: int) -> None:
    tensor = parameters()[number]
    for index in range(tensor.numel()):
        changed = parameters()
        changed[number].view(-1)[index] += 1
        steps = range(EVERY, EVERY * 200, EVERY)
        assert any(sampled_digest(changed, step) != sampled_digest(parameters(), step) for step in steps)


def test_only_wrappers_of_this_step_count() -> None:
    same, model = Sameness(), wrapper()
    same.follow(model)
    same.follow(model)
    assert [same.due(step) for step in (1, 2, 10, 99, 100)] == [True, False, True, False, True]
    same.stepped()
    assert not same.due(100)


def wrapper() -> DistributedDataParallel:
    """One that is only looked at, never used."""
    made = DistributedDataParallel.__new__(DistributedDataParallel)
    made.__dict__["_comm_hooks"] = []
    return made


def test_nothing_is_due_without_a_wrapper() -> None:
    assert not any(Sameness().due(step) for step in (1, 10, 100))


def test_who_reduces_in_a_way_of_his_own_is_left_alone() -> None:
    same, model = Sameness(), wrapper()
    model.__dict__["_comm_hooks"] = ["local SGD"]
    same.follow(model)
    assert not same.due(100)
