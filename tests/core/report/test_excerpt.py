"""Lines of source around a place."""

from lockstep.core.finding import Place
from lockstep.core.report.excerpt import excerpt, source_line

TEXT = "def f():\r\n\tif x:\n\n        y = 1\n        z = '\x0c\u2028'\n"
SOURCES = {"a.py": TEXT}


def test_the_lines_around_keep_their_numbers_and_lose_their_common_indentation() -> None:
    lines = excerpt(SOURCES, Place("a.py", 4), around=1)
    assert [(line.number, line.text, line.here) for line in lines] == [
        (3, "", False),
        (4, "y = 1", True),
        (5, "z = '\\x0c\u2028'", False),
    ]


def test_tabs_line_ends_and_the_edges_of_the_file() -> None:
    assert [line.text for line in excerpt(SOURCES, Place("a.py", 1), around=1)] == ["def f():", "    if x:"]
    assert excerpt(SOURCES, Place("a.py", 6), around=0)[0].text == ""


def test_what_is_not_known_is_not_shown() -> None:
    for place in (None, Place("b.py", 1), Place("a.py"), Place("a.py", 99), Place("a.py", -1)):
        assert excerpt(SOURCES, place) == ()
        assert source_line(SOURCES, place) == ""


def test_a_line_without_end_is_cut() -> None:
    assert len(source_line({"a.py": "x" * 10**6}, Place("a.py", 1))) < 300
