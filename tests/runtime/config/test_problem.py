from typing import Any

import pytest

from lockstep.runtime.config.problem import LONGEST_VALUE, either, kind, leaves, show, walk


@pytest.mark.parametrize(
    ("value", "text", "name"),
    [
        (None, "null", "null"),
        (True, "true", "a truth value"),
        (3, "3", "a whole number"),
        (3e-4, "0.0003", "a number"),
        ("é", '"é"', "text"),
        ([1, "x"], '[1, "x"]', "a list"),
        ({"a": 1}, '{"a": 1}', "a mapping"),
        (b"x", "\"b'x'\"", "bytes"),
    ],
)
def test_values_in_words(value: Any, text: str, name: str) -> None:
    assert (show(value), kind(value)) == (text, name)


def test_long_values_are_cut() -> None:
    assert len(show("x" * 1000)) == LONGEST_VALUE


def test_either() -> None:
    assert [either(["a"]), either(["a", "b"]), either(["a", "b", "c"])] == ["a", "a or b", "a, b or c"]


def test_walk_and_leaves() -> None:
    values = {"a": {"b": 1, "c": {}}, "d": [1]}
    assert [path for path, _ in walk(values)] == [("a",), ("a", "b"), ("a", "c"), ("d",)]
    assert leaves(values) == {("a", "b"): 1, ("a", "c"): {}, ("d",): [1]}
