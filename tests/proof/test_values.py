from pathlib import Path

import numpy as np
import pytest

from lockstep.proof import values
from lockstep.proof.align import views
from lockstep.proof.values import Values
from tests.proof.by_hand import Made, take


def of(**arrays: list[float]) -> Values:
    return Values({key: np.array(value, dtype=np.float64) for key, value in arrays.items()})


def test_values_are_read_beside_the_trace(tmp_path: Path) -> None:
    made = take(tmp_path / "a", [Made({"0/0": [3.0, 4.0]}, {"0/0": [1.0, 2.0]}, {"0/0": [0.5, 0.5]})])
    (view,) = views(made.trace.ranks[0])
    assert values.gradients(made, 0, view).norm == 5
    assert values.parameters(made, 0, view).arrays["0/0"].tolist() == [1, 2]
    assert values.starts(made, 0, view).arrays["0/0"].tolist() == [0.5, 0.5]


def test_errors_are_relative_to_the_norm_of_all() -> None:
    errors = values.errors(of(big=[3.0, 4.0], tiny=[0.0]), of(big=[3.0, 4.5], tiny=[1e-9]))
    assert errors == {"big": pytest.approx(0.1), "tiny": pytest.approx(2e-10)}
    assert values.total({"a": 3.0, "b": 4.0}) == 5


def test_a_missing_gradient_is_a_zero_one() -> None:
    assert values.errors(of(a=[3.0], b=[4.0]), of(a=[3.0])) == {"a": 0, "b": pytest.approx(0.8)}
    assert values.errors(of(a=[3.0]), of(a=[3.0], b=[6.0])) == {"a": 0, "b": 2}


def test_another_shape_is_infinitely_wrong() -> None:
    assert values.errors(of(a=[1.0, 2.0]), of(a=[1.0])) == {"a": float("inf")}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_infinitely_wrong(bad: float) -> None:
    good, broken = of(a=[1.0, 2.0], b=[1.0]), of(a=[1.0, bad], b=[1.0])
    assert values.errors(good, broken) == {"a": float("inf"), "b": 0}
    assert values.errors(broken, good) == {"a": float("inf"), "b": 0}
    assert values.errors(broken, broken) == {"a": 0, "b": 0}
    assert values.total(values.errors(good, broken)) == float("inf")


def test_nothing_at_all_has_no_error() -> None:
    assert values.errors(of(a=[0.0]), of(a=[0.0])) == {"a": 0}
    assert values.total(values.errors(of(), of())) == 0


@pytest.mark.parametrize("ratio", [0.5, 2.0, 3.0, -1.0, 1 / 3])
def test_a_factor_is_found(ratio: float) -> None:
    wanted = of(a=[1.0, -2.0], b=[3.0])
    seen = of(a=[ratio, -2 * ratio], b=[3 * ratio])
    assert values.factor(wanted, seen) == pytest.approx(ratio)


@pytest.mark.parametrize(
    "seen",
    [
        of(a=[1.0, -2.0], b=[3.0]),  # equal
        of(a=[2.0, -4.0], b=[3.0]),  # only one of them scaled
        of(a=[2.0, -4.0]),  # one is missing
        of(a=[2.0], b=[6.0]),  # another shape
        of(a=[2.0, -4.0], b=[float("inf")]),
        of(a=[0.0, 0.0], b=[0.0]),
    ],
)
def test_no_factor(seen: Values) -> None:
    assert values.factor(of(a=[1.0, -2.0], b=[3.0]), seen) is None


def test_a_zero_gradient_has_no_factor() -> None:
    assert values.factor(of(a=[0.0]), of(a=[1.0])) is None


def test_values_for_people() -> None:
    assert values.shown(np.array(0.25)) == "0.25"
    assert values.shown(np.array([3.0, 4.0])) == "norm 5 (3, 4)"
    assert values.shown(np.arange(5.0)) == "norm 5.47723 (0, 1, 2, ...)"


def test_what_is_lost_near_the_smallest_numbers_is_negligible() -> None:
    one = np.array([1.0, 7e-45, float("nan"), float("inf")])
    assert values.negligible(one, np.array([1.0, 5.6e-45, float("nan"), float("inf")]))
    assert not values.negligible(one, np.array([1.0 + 1e-16 * 4, 7e-45, float("nan"), float("inf")]))
    assert not values.negligible(one, np.array([1.0, 7e-45, 0.0, float("inf")]))
    assert not values.negligible(one, one[:2])
    assert not values.negligible(None, one)
