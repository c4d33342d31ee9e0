"""Nested mappings become dotted names."""

from lockstep.runtime.trackers.flat import flat


def test_names_are_dotted_and_lists_stay_whole() -> None:
    assert flat({"a": 1, "b": {"c": [1, 2], "d": {"e": None}}}) == {"a": 1, "b.c": [1, 2], "b.d.e": None}


def test_an_empty_mapping_gives_nothing() -> None:
    assert flat({"options": {}, "seed": 0}) == {"seed": 0}
