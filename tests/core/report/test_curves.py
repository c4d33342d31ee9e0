"""Pictures of losses: what they say, and that any values can be drawn."""

import math
import xml.etree.ElementTree as ET

import pytest

from lockstep.core.proof import Curve
from lockstep.core.report.curves import figures
from tests.core.report.examples import curves


def test_nothing_to_show() -> None:
    assert figures(()) == []
    assert figures((Curve("reference", ()), Curve("2 ranks", ()))) == []
    assert [one.title for one in figures((Curve("2 ranks", (1.0,)),))] == ["Loss"]


def test_equal_runs_are_said_to_be_equal() -> None:
    loss, distance = figures(curves(parted=False))
    assert distance.said == "2 ranks: equal, to the last bit, at all 12 steps."
    assert not loss.signal
    assert not distance.signal
    assert len(loss.rows) == 12
    assert loss.head == ("step", "reference", "2 ranks")


def test_the_first_step_apart_and_the_largest_difference_are_said() -> None:
    run = (1.0, 2.0, 3.5, 4.0)
    _, distance = figures((Curve("2 ranks", run), Curve("reference", (1.0, 2.0, 3.0, 4.25))), mark=2)
    assert distance.said == "2 ranks: apart at 2 of 4 steps, first at step 2, at most 0.5."
    assert distance.signal
    assert "first difference: step 2" in distance.svg
    assert [row[1] for row in distance.rows] == ["0.0", "0.0", "0.5", "0.25"]


def test_values_that_are_not_finite_are_gaps_and_said() -> None:
    reference = Curve("reference", (1.0, math.nan, 3.0, math.inf))
    loss, distance = figures((reference, Curve("2 ranks", (1.0, math.nan, math.nan, math.inf))))
    assert "5 values not finite" in loss.said
    assert distance.said == "2 ranks: apart at 1 of 4 steps, first at step 2, where one is not finite."


@pytest.mark.parametrize(
    "values",
    [(1.0,), (0.0, 0.0), (1e308, -1e308), (5e-324, 1.0), (math.nan,), (math.inf, -math.inf), (-1.0, -2.0)],
)
def test_any_values_can_be_drawn(values: tuple[float, ...]) -> None:
    for figure in figures((Curve("reference", (1.0, 0.0, 2.0)), Curve("2 ranks", values)), mark=0):
        for path in ET.fromstring(figure.svg).iter("path"):
            assert not {"n", "a", "i", "f"} & set(path.attrib["d"])


def test_a_peak_among_many_steps_is_drawn_and_the_table_keeps_the_marked_step() -> None:
    values = [1.0] * 100_000
    values[54_321] = 9.0
    loss, distance = figures((Curve("reference", (1.0,) * 100_000), Curve("2 ranks", tuple(values))), mark=54_321)
    assert len(loss.svg) < 60_000
    assert "54321" in [row[0] for row in loss.rows]
    assert len(loss.rows) <= 102
    assert distance.said.endswith("first at step 54321, at most 8.")
    assert any(" 16" in one.attrib["d"] for one in ET.fromstring(loss.svg).iter("path"))  # the top of the picture


def test_runs_of_the_same_name_and_of_other_lengths() -> None:
    both = (Curve("reference", (1.0, 2.0)), Curve("x", (1.0,)), Curve("x", (1.0, 2.0, 3.0)), Curve("y", (2.0, 2.0)))
    _, distance = figures(both)
    assert distance.head == ("step", "x", "x", "y")
    assert list(distance.rows) == [("0", "0.0", "0.0", "1.0"), ("1", "", "0.0", "0.0")]
