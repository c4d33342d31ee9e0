"""Errors in one line."""

from lockstep.core.errors import UserError, explain
from lockstep.runtime.scanning.telling import name_digest, told


def test_errors_in_one_line() -> None:
    assert told(UserError(explain("a.jpg is empty", "an image"))) == "a.jpg is empty"
    try:
        raise OSError("cannot identify\n  <Bytes object at 0x7f0012ab>")
    except OSError as error:
        assert told(error).startswith("OSError: cannot identify <Bytes object> (test_telling.py:")
    assert told(ValueError()) == "ValueError"


def test_names_by_64_bits() -> None:
    assert name_digest("a.png") == name_digest("a.png") != name_digest("b.png")
    assert 0 <= name_digest("\udcff.png") < 2**64


def test_an_error_of_ours_for_one_of_theirs_and_one_without_a_text() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert told(MuteError()) == "MuteError: (its text raised RuntimeError)"
    try:
        raise KeyError("path")
    except KeyError as error:
        ours = RuntimeError("ours")
        ours.__cause__ = error
    assert told(ours).startswith("KeyError: 'path' (test_telling.py:")
