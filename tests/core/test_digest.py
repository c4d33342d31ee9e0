"""Digests name content: equal content has one, any change gives another."""

import hashlib
from pathlib import Path

import pytest

from lockstep.core.digest import file_digest, value_digest


def test_file_digest_is_sha256_of_the_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000  # more than one read
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "empty").write_bytes(b"")
    assert file_digest(tmp_path / "file") == hashlib.sha256(content).hexdigest()
    assert file_digest(tmp_path / "empty") == hashlib.sha256(b"").hexdigest()


def test_file_digest_of_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_digest(tmp_path / "none")


def test_value_digest_does_not_see_the_order_of_keys() -> None:
    one = {"a": 1, "b": {"c": [1, 2], "d": None}}
    other = {"b": {"d": None, "c": [1, 2]}, "a": 1}
    assert value_digest(one) == value_digest(other)
    assert len(value_digest(one)) == 64


@pytest.mark.parametrize("other", [{"a": 2}, {"a": "1"}, {"a": 1.5}, {"a": [1]}, {"b": 1}, {}, [], None, "é"])
def test_value_digest_sees_every_change(other: object) -> None:
    assert value_digest(other) != value_digest({"a": 1})


def test_value_digest_sees_the_order_of_a_list() -> None:
    assert value_digest([1, 2]) != value_digest([2, 1])
