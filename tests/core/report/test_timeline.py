"""The picture of what the ranks did: every moment has its bar, its words and its place."""

import math
import xml.etree.ElementTree as ET

from lockstep.core.finding import Place
from lockstep.core.proof import Moment
from lockstep.core.report.timeline import figures
from tests.core.report.examples import ROOT, moments


def bars(svg: str) -> list[ET.Element]:
    return [
        one for one in ET.fromstring(svg).iter("rect") if one.attrib["class"].startswith("bar ") and "y" in one.attrib
    ]


def test_nothing_to_show() -> None:
    assert figures(()) == []
    assert figures((Moment(0, "step", math.nan, 1.0, 0),)) == []


def test_every_moment_has_a_bar_that_says_what_it_is() -> None:
    (figure,) = figures(moments(), mark=1, root=ROOT)
    assert len(figure.rows) == len(moments())
    titles = [one.text or "" for one in ET.fromstring(figure.svg).iter("title")]
    assert len(titles) == len(moments())
    assert "rank 0, step 0: backward backward 0\n9 ms from 8 ms\ntrain_ddp.py:29" in titles
    assert figure.said == "2 ranks, steps 0 to 2, 75.8 ms."
    assert "first difference: step 1" in figure.svg
    assert figure.head[0] == "rank"


def test_what_lies_inside_another_is_drawn_below_it() -> None:
    outer, inner = Moment(0, "backward", 0.0, 1.0, 0), Moment(0, "collective", 0.2, 0.6, 0)
    (figure,) = figures((inner, outer))
    drawn = {one.attrib["class"]: float(one.attrib["y"]) for one in bars(figure.svg)[:2]}
    assert drawn["bar collective"] > drawn["bar backward"]


def test_an_unknown_kind_a_moment_without_length_and_a_far_mark() -> None:
    (figure,) = figures((Moment(3, "<new>", 5.0, 5.0, 7, "<b>", Place("<x>", 1)),), mark=99)
    assert "bar other" in figure.svg
    assert "first difference" not in figure.svg
    assert "<new>" not in figure.svg


def test_of_many_moments_those_near_the_mark_are_shown() -> None:
    many = [Moment(rank, "step", step + 0.1, step + 0.5, step) for rank in range(2) for step in range(1000)]
    (figure,) = figures(many, mark=500)
    assert figure.said.startswith("2 ranks, steps 350 to ")
    assert "1,400 moments further away not shown" in figure.said
    assert len(figure.rows) == 600
