"""A loss is a sum and a count: its mean is over all ranks and micro-batches, 0 / 0 is 0, and a bad one is seen."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lockstep.core.errors import UserError
from lockstep.runtime.loss import CountSum, Term, checked_terms, masked_term, total_loss
from lockstep.runtime.world import World
from tests.ranks import run_ranks

D = torch.float64


def number(value: float, dtype: torch.dtype = D) -> Tensor:
    return torch.tensor(value, dtype=dtype, requires_grad=True)


def test_a_masked_term_counts_what_is_valid() -> None:
    each = torch.tensor([[1.0, 2.0], [4.0, math.nan]], requires_grad=True)
    valid = torch.tensor([[True, False], [True, False]])
    term = masked_term(each, valid, 0.5)
    assert (float(term.sum.detach()), int(term.count), term.weight) == (5.0, 2, 0.5)  # type: ignore[arg-type]
    term.sum.backward()
    assert each.grad is not None
    assert each.grad.tolist() == [[1.0, 0.0], [1.0, 0.0]]  # nan outside the mask does not count
    nothing = masked_term(each, torch.zeros(2, 2, dtype=torch.bool))
    assert (float(nothing.sum.detach()), int(nothing.count)) == (0.0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [3, 3.0, torch.tensor(3), torch.tensor(3.0)])
def test_terms_are_taken_as_terms_or_as_tuples(count: Any) -> None:
    x = number(1.0)
    for given in ({"a": Term(x, count)}, {"a": (x, count)}, {"a": (x, count, 1.0)}):
        (term,) = checked_terms(given, "R").values()
        assert term.sum is x
        assert (float(term.count), term.weight) == (3.0, 1.0)


def test_a_count_out_of_the_model_is_a_plain_number() -> None:
    term = checked_terms({"a": Term(number(1.0), number(2.0))}, "R")["a"]
    assert isinstance(term.count, Tensor)
    assert not term.count.requires_grad
    assert float(term.count) == 2.0  # warnings are errors here


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        torch.ones(()),
        [("a", Term(torch.ones(()), 1))],
        {"a": torch.ones(())},
        {"a": (torch.ones(()),)},
        {"a": (torch.ones(()), 1, 1.0, 2)},
        {"a": Term(torch.ones(1), 1)},
        {"a": Term(1.0, 1)},  # type: ignore[arg-type]
        {"a": [torch.ones(()), 1]},
    ],
)
def test_anything_else_is_refused_with_an_example(wrong: Any) -> None:
    with pytest.raises(UserError, match=r"(?s)Recipe.loss returned .*Term\(sum, count\)"):
        checked_terms(wrong, "Recipe")


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_the_share_undoes_the_average_over_the_ranks(num_ranks: int, as_tensor: bool) -> None:
    """The mean over the ranks of what each returns is the weighted sum of the global means."""
    shares = [{"a": (2.0 + r, 3 + r), "b": (5.0 * r, r)} for r in range(num_ranks)]
    totals: dict[str, Any] = {name: sum(share[name][1] for share in shares) for name in ("a", "b")}
    weights = {"a": 1.0, "b": 0.25}
    expected = sum(
        weights[name] * sum(share[name][0] for share in shares) / totals[name] if totals[name] else 0.0
        for name in ("a", "b")
    )
    given = {name: torch.tensor(float(total), dtype=D) for name, total in totals.items()} if as_tensor else totals
    values = []
    for share in shares:
        terms = {name: Term(number(value), count, weights[name]) for name, (value, count) in share.items()}
        values.append(float(total_loss(terms, given, num_ranks).detach()))
    assert sum(values) / num_ranks == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("total", [0, 0.0, torch.tensor(0), torch.tensor(0.0)])
def test_nothing_over_nothing_is_nothing(total: Any) -> None:
    x, y = number(0.0), number(6.0)
    loss = total_loss({"a": Term(x, 0), "b": Term(y, 2)}, {"a": total, "b": 3}, 1)
    loss.backward()
    assert float(loss.detach()) == 2.0
    assert (float(x.grad), float(y.grad)) == (0.0, pytest.approx(1 / 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("total", [4, 0, torch.tensor(4.0)])
def test_a_sum_that_is_not_finite_makes_every_gradient_so(bad: float, total: Any) -> None:
    """`inf` alone may have finite gradients, and then no other rank would see it."""
    weight = number(1.0)
    total_loss({"good": Term(weight * 2, 1), "bad": Term(weight + bad, 1)}, {"good": 1, "bad": total}, 2).backward()
    assert weight.grad is not None
    assert not math.isfinite(float(weight.grad))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loses_nothing_in_the_division(dtype: torch.dtype) -> None:
    count = 3_000_000  # 1 / count is 0 in fp16
    loss = total_loss({"a": Term(number(1.0, dtype), count)}, {"a": count}, 1)
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(1 / count, rel=1e-6)
    mixed = {"a": Term(number(1.0, dtype), 3), "b": Term(number(1.0, torch.float32), 3)}
    assert float(total_loss(mixed, {"a": 3, "b": 3}, 1).detach()) == pytest.approx(2 / 3, rel=1e-6)


def test_double_stays_double() -> None:
    loss = total_loss({"a": Term(number(1.0), 3)}, {"a": 3}, 1)
    assert loss.dtype == D
    assert float(loss.detach()) == 1 / 3


def summed() -> dict[str, Any]:
    with World.enter(threads=1) as world:
        r = world.rank
        found: dict[str, Any] = {}
        names = {"b": 10.0 * r, "a": 2.0**40 + r} if r else {"a": 2.0**40, "b": 0.0}
        found["sorted"] = CountSum(names, world).wait()
        first, second = CountSum({"x": 1}, world), CountSum({"x": 0.5 * r}, world)
        found["two on their way"] = second.wait(), first.wait()
        found["none"] = CountSum({"x": 0}, world).wait()
        found["large"] = CountSum({"x": 2**50 + 1}, world).wait()
        return found


def test_counts_are_summed_over_the_ranks_by_name() -> None:
    for found in run_ranks(summed, 3):
        assert found["sorted"] == {"a": 3 * 2.0**40 + 3, "b": 30.0}
        assert found["two on their way"] == ({"x": 1.5}, {"x": 3.0})
        assert found["none"] == {"x": 0.0}
        assert found["large"] == {"x": 3.0 * (2**50 + 1)}
