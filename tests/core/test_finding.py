"""Places that are parsed from text, and where a finding points."""

import pytest

from lockstep.core.finding import Finding, Law, Place, Severity, Witness


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("train.py:12", Place("train.py", 12)),
        ("C:\\my code\\train.py:7", Place("C:\\my code\\train.py", 7)),
        ("/a:b/train.py:3", Place("/a:b/train.py", 3)),
        ("train.py", Place("train.py")),
        ("/a:b/train.py", Place("/a:b/train.py")),
        ("", None),
    ],
)
def test_a_place_is_read_from_text(text: str, place: Place | None) -> None:
    assert Place.parse(text) == place
    assert place is None or str(place) == text, "and written as it was read"


def test_a_finding_points_to_the_first_witness_that_has_a_place() -> None:
    here, there = Place("a.py", 1), Place("b.py", 2)
    witnesses = (Witness("rank 0 is fine"), Witness("rank 1", rank=1, place=here), Witness("rank 2", place=there))
    finding = Finding("LS101", Severity.ERROR, "seen", "must", "next", witnesses)
    assert finding.place == here
    assert Finding("LS101", Severity.ERROR, "seen", "must", "next").place is None


def test_severities_are_told_the_gravest_first_and_values_are_words() -> None:
    assert [str(one) for one in Severity] == ["error", "deviation", "note"]
    assert [str(one) for one in Law] == ["SAME", "SPLIT", "ONCE", "SCALE"]


def test_findings_that_say_the_same_are_one() -> None:
    one, other = (Finding("LS101", Severity.ERROR, "s", "m", "n", (Witness("w", 0, 1),)) for _ in range(2))
    assert {one, other} == {one}
