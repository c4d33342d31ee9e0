"""Scales, ticks, numbers and elements of pictures."""

import math
import sys
import xml.etree.ElementTree as ET

import pytest

from lockstep.core.report.svg import Scale, decades, element, hover, label, number, path, picture, round_values, short


def test_what_is_put_in_stays_text() -> None:
    bad = "</svg><script>\"'&\x00\x1b\udcff"
    drawn = picture(10.0, 20.0, bad, element("g", hover(bad), label(1.0, 2.0, bad), data_x=bad, class_=bad))
    root = ET.fromstring(drawn)
    assert [one.tag for one in root.iter()] == ["svg", "g", "title", "text"]
    shown = "</svg><script>\"'&\\x00\\x1b\\udcff"
    assert root.attrib["aria-label"] == root[0].attrib["class"] == root[0].attrib["data-x"] == shown
    assert root[0][1].text == shown


def test_numbers_are_short() -> None:
    assert [number(one) for one in (1.0, 1.256, 0.0, -0.5)] == ["1", "1.26", "0", "-0.5"]
    assert [short(one) for one in (0.25, 1e-7, 12000.0, 0.0, -3.0, 1e20)] == [
        "0.25",
        "1e-7",
        "12,000",
        "0",
        "-3",
        "1e20",
    ]
    assert [short(one) for one in (math.nan, math.inf)] == ["nan", "inf"]


def test_a_scale_maps_its_range_and_keeps_what_is_outside_on_the_edge() -> None:
    up = Scale(0, 10, 100, 0)
    assert [up(value) for value in (0, 5, 10, -5, 20)] == [100, 50, 0, 100, 0]
    log = Scale(0.001, 1000, 0, 60, log=True)
    assert [round(log(value), 6) for value in (0.001, 1, 1000, 0)] == [0, 30, 60, 0]
    assert Scale(3, 3, 0, 10)(3) == 5
    assert math.isfinite(Scale(-sys.float_info.max, sys.float_info.max, 0, 10)(0.0))


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.0, 63.0), (1.02, 1.4), (-5, 5), (1e-9, 2e-9), (1e300, 1e308), (0, 59_999)]
)
def test_ticks_are_few_and_round_and_inside(low: float, high: float) -> None:
    ticks = round_values(low, high)
    assert 2 <= len(ticks) <= 11
    assert all(low * (1 - 1e-9) <= tick <= high * (1 + 1e-9) for tick in ticks if low >= 0)


def test_ticks_of_odd_ranges() -> None:
    assert round_values(1.0, 1.0) == [1.0]
    assert round_values(-sys.float_info.max, sys.float_info.max) == [-sys.float_info.max]
    assert decades(1e-3, 1e2) == pytest.approx([1e-3, 1e-2, 1e-1, 1, 10, 100])
    assert 2 <= len(decades(5e-324, 1e308)) <= 7


def test_a_path_has_gaps_and_dots() -> None:
    assert 'd="M0 0L1 1M3 3h0"' in path([(0, 0), (1, 1), None, (3, 3), None])
    assert path([None, None]) == path([]) == ""
