"""A program in float64, with draws that do not depend on how a batch is cut."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from lockstep.trace import double
from lockstep.trace.feed import Slice
from tests.ranks import run_ranks


def _within(rows: Slice | None, work: Callable[..., Any], *args: Any) -> Any:
    double.enter(None if rows is None else lambda: rows)
    return work(*args)


def _inside(work: Callable[..., Any], *args: Any, rows: Slice | None = None) -> Any:
    (result,) = run_ranks(_within, 1, rows, work, *args)
    return result


def _types() -> list[str]:
    array = np.ones(2, dtype=np.float32)
    made = [
        torch.ones(1),
        torch.ones(1, dtype=torch.float16),
        torch.zeros(1, dtype=torch.int32).float(),
        torch.ones(1).half(),
        torch.ones(1).to(torch.bfloat16),
        torch.ones(1).type(torch.float32),
        torch.from_numpy(array),
        torch.tensor(array),
        torch.FloatTensor([1.0]),
        nn.Linear(1, 1, dtype=torch.float32).weight,
        nn.Linear(1, 1).half()(torch.ones(1, 1)),
        torch.ones(2, 2, dtype=torch.float32) @ torch.ones(2, 2),
        torch.arange(3),
        torch.from_numpy(np.arange(3)),
        torch.ones(1) > 0,
    ]
    return [str(one.dtype).removeprefix("torch.") for one in made]


def test_whatever_the_script_makes_of_floats_is_double() -> None:
    assert _inside(_types) == ["float64"] * 12 + ["int64", "int64", "bool"]


def _dropped() -> list[bool]:
    x = torch.ones(4, 4)
    layers = nn.Sequential(
        nn.Dropout(0.5), nn.TransformerEncoderLayer(4, 1, 4, batch_first=True), nn.LSTM(4, 4, 2, dropout=0.5)
    )
    double.without_dropout(layers)
    attended = F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.9)
    once, again = layers[1](x[None]), layers[1](x[None])
    return [
        torch.equal(F.dropout(x, 0.5), x),
        torch.equal(F.dropout(input=x, p=0.5), x),
        torch.equal(nn.Dropout2d(0.5)(x[None, None]), x[None, None]),
        torch.equal(layers[0](x), x),
        torch.equal(once, again),
        torch.equal(layers[2](x)[0], layers[2](x)[0]),
        torch.allclose(attended, torch.ones(1, 4, 4)),
    ]


def test_nothing_is_dropped() -> None:
    assert _inside(_dropped) == [True] * 7


def test_only_rates_are_set_to_nothing() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p, self.dropout, self.drop_prob, self.other = 0.5, True, 0.3, 0.5

    model = nn.Sequential(Odd(), nn.Dropout(0.5), nn.Dropout(1.0))
    double.without_dropout(model)
    odd: Any = model[0]
    assert (odd.p, odd.dropout, odd.drop_prob, odd.other) == (0.5, True, 0.0, 0.5)
    assert [one.p for one in model[1:]] == [0.0, 1.0]


def _draws(rows: int) -> list[list[Any]]:
    """Draws of a script whose batch has so many rows."""
    torch.manual_seed(4)
    own = torch.Generator().manual_seed(3)
    x = torch.full((rows, 2), 0.5)
    found = [
        torch.rand(rows, 2),
        torch.randn((rows, 3)),
        torch.randn(size=(rows, 1), generator=own),
        torch.randint(0, 100, (rows,)),
        torch.randint(100, size=(rows, 2)),
        torch.rand_like(x),
        torch.randn_like(input=x),
        torch.bernoulli(x),
        torch.empty(rows, 2).normal_(),
        torch.empty(rows, 2).uniform_(-1, 1),
        torch.empty(rows, 2).bernoulli_(0.5),
    ]
    return [one.tolist() for one in found]


def test_ranks_together_draw_what_one_process_draws() -> None:
    whole = _inside(_draws, 4, rows=Slice(0, 4, 4))
    first, second = (_inside(_draws, 2, rows=Slice(start, start + 2, 4)) for start in (0, 2))
    for number, wanted in enumerate(whole):
        assert first[number] + second[number] == wanted, number


def _others() -> list[Any]:
    torch.manual_seed(4)
    found = [torch.rand(3, 2), torch.randn(()), torch.rand_like(torch.ones(3)), torch.randn(5), torch.randperm(4)]
    weight = torch.ones(3, 2)
    nn.init.normal_(weight)
    return [*(one.tolist() for one in found), weight.tolist(), torch.rand(1).item()]


def test_draws_of_another_number_of_rows_are_left_alone() -> None:
    assert _inside(_others, rows=Slice(0, 2, 4)) == _inside(_others)


def _same_object() -> list[bool]:
    x = torch.ones(3)
    low = torch.utils.dlpack.from_dlpack(torch.ones(2))  # an exchange keeps its type
    base = torch.zeros(4)
    base[:2].normal_()
    return [x.add_(1) is x, low.mul_(2) is low, bool(base[:2].abs().sum() > 0), x.requires_grad_() is x]


def test_what_is_changed_in_place_stays_itself() -> None:
    assert _inside(_same_object, rows=Slice(0, 2, 4)) == [True] * 4
