"""NaN, inf and distances, exact and in pieces."""

import math

import pytest
import torch

from lockstep.runtime.foreign import values
from lockstep.runtime.foreign.values import Odd, distance, odd_values, same_bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_odd_values_are_counted(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[1.0, math.nan], [math.inf, -math.inf]]).to(dtype)
    assert odd_values(tensor) == Odd(1, 2) and str(Odd(1, 2)) == "1 NaN, 2 inf"
    assert not odd_values(torch.ones(3, dtype=dtype)) and not odd_values(torch.tensor([1]))
    assert not odd_values(torch.zeros(0)) and odd_values(torch.tensor([math.nan]).to(torch.float8_e4m3fn)).nan == 1


@pytest.mark.parametrize("piece", [3, 2**22])
def test_a_distance_is_what_the_whole_says(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(values, "PIECE", piece)
    torch.manual_seed(0)
    one, other = torch.randn(5, 4), torch.randn(5, 4)
    other[0] = one[0]
    found = distance(one, other)
    assert found is not None and (found.elements, found.numel, found.first) == (16, 20, (1, 0))
    gap = (one.double() - other.double()).abs()
    assert found.largest == float(gap.max())
    norm = max(float(one.double().norm()), float(other.double().norm()))
    assert found.relative == pytest.approx(float(gap.norm()) / norm)
    assert (found.left, found.right) == (float(one[1, 0]), float(other[1, 0]))


def test_special_values() -> None:
    nan = torch.tensor([math.nan, 1.0])
    assert distance(nan, nan.clone()) is None and same_bits(nan, nan.clone())
    found = distance(nan, torch.ones(2))
    assert found is not None and found.largest == math.inf and found.elements == 1
    inf = torch.tensor([math.inf])
    assert distance(inf, inf.clone()) is None
    assert (
        not same_bits(torch.tensor([0.0]), torch.tensor([-0.0])) and distance(torch.zeros(1), -torch.zeros(1)) is None
    )
    big = torch.tensor([2**60])
    far = distance(big, big + 1)
    assert far is not None and far.elements == 1
    assert distance(torch.tensor(1.0), torch.tensor(1.0, dtype=torch.bfloat16)) is None
    complex_ = distance(torch.tensor([1j]), torch.tensor([1.0 + 0j]))
    assert complex_ is not None and complex_.largest == pytest.approx(2**0.5)


def test_a_row_of_one_number_with_any_stride() -> None:
    one = torch.ones(1).expand(5)[:1]
    assert same_bits(one, torch.ones(1)) and not same_bits(one, torch.zeros(1))
    assert same_bits(one.reshape(()), torch.tensor(1.0)) and same_bits(torch.zeros(0), torch.zeros(0))
