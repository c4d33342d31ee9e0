"""Modules without what is wrapped around them."""

import pytest
import torch
from torch import nn

from lockstep.trace.hooks.modules import autocast, clean, first_parameter, is_wrapper, synchronised, unwrapped


def test_wrappers_are_taken_off() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    parallel = nn.DataParallel(model)
    compiled = torch.compile(parallel, backend="eager")
    for wrapped in (parallel, compiled):
        assert is_wrapper(wrapped) and unwrapped(wrapped) is model
    assert not is_wrapper(model) and unwrapped(model) is model


class _Sly(nn.Module):
    """Has whatever it is asked for, and lists no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def __getattr__(self, name: str) -> object:
        return super().__getattr__(name) if name in ("weight", "module") else name

    def parameters(self, recurse: bool = True) -> object:  # type: ignore[override]
        return []


def test_a_module_that_answers_to_every_name_is_no_wrapper() -> None:
    model = _Sly()
    assert not is_wrapper(model) and unwrapped(model) is model
    assert first_parameter(model) is model.weight
    assert first_parameter(nn.ReLU()) is None


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("_orig_mod.0.weight", "0.weight"),
        ("layers._checkpoint_wrapped_module._orig_mod.0.bias", "layers.0.bias"),
        ("module.weight", "module.weight"),
        ("", ""),
    ],
)
def test_names_without_what_wrappers_put_in_front(name: str, wanted: str) -> None:
    assert clean(name) == wanted


def test_the_type_of_autocast() -> None:
    model, meta = nn.Linear(1, 1), nn.Linear(1, 1, device="meta")
    with torch.autocast("cpu", torch.bfloat16):
        assert (autocast(model), autocast(nn.ReLU()), autocast(meta)) == ("bfloat16", "bfloat16", "")
    assert autocast(model) == ""


def test_norms_that_count_with_all_ranks() -> None:
    assert synchronised(nn.SyncBatchNorm(2)) and not synchronised(nn.BatchNorm1d(2))
