"""The order of findings."""

import random

from lockstep.runtime.scanning.finding import KINDS, NOTES, Finding, in_order


def test_kind_comes_before_split_before_index() -> None:
    wanted = [
        Finding("unreadable", "train", 7, "", "a"),
        Finding("unreadable", "train", 10, "", "a"),
        Finding("unreadable", "val", 2, "", "a"),
        Finding("label", "train", 1, "", "a"),
        Finding("stray", "train", None, "a.png", "no image"),
        Finding("stray", "train", None, "b.png", "no image"),
    ]
    mixed = random.Random(0).sample(wanted, len(wanted))
    assert mixed != wanted
    assert in_order(mixed, ["train", "val"]) == wanted


def test_notes_are_known_kinds_and_say_so() -> None:
    assert KINDS.keys() >= NOTES
    assert Finding("both", "train", 1, "", "").note
    assert not Finding("label", "train", 1, "", "").note
