"""Every tensor of a batch is found, and what is wrong with its numbers."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from lockstep.runtime.triage.values import fault, floats_in, largest, numbers_in


@dataclass
class Pair:
    image: Tensor
    label: Tensor


def test_tensors_by_the_path_that_leads_to_them() -> None:
    one = torch.ones(1)
    value = {"a": [one, Pair(one, torch.ones(1, dtype=torch.int64))], "b": ("text", 3, {"c": one}), 4: None}
    assert [name for name, _ in floats_in(value)] == ["a[0]", "a[1].image", "b[2].c"]
    assert [name for name, _ in floats_in(one)] == [""]


def test_numbers() -> None:
    assert list(numbers_in(([1.5, 2], {"x": -math.inf}, "text", torch.ones(1)))) == [1.5, -math.inf]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.0], ""),
        ([], ""),
        ([math.inf, 1.0], "inf"),
        ([-math.inf, 1.0], "-inf"),
        ([-math.inf, math.inf], "inf"),
        ([math.inf, math.nan], "nan"),
    ],
)
def test_the_worst_is_said(values: list[float], said: str) -> None:
    assert fault(torch.tensor(values)) == said


def test_what_cannot_be_read_is_no_fault() -> None:
    freed = torch.full((4,), math.nan)
    freed.untyped_storage().resize_(0)
    assert fault(freed) == ""
    assert fault(torch.full((2, 2), math.nan).to_sparse()) == ""
    assert largest(iter([freed])) == 0


def test_the_largest() -> None:
    assert largest(iter([torch.tensor([1.0, -3.0, math.nan, math.inf]), torch.tensor([2.0]).half()])) == 3.0
    assert largest(iter([])) == 0
