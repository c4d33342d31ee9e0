"""A message has four parts, an error its exit code, and both survive the way out of a worker process."""

import pickle

import pytest

from lockstep.core.errors import LockstepError, RunError, UserError, explain
from lockstep.core.outcome import Exit


def test_explain_has_a_line_for_each_part() -> None:
    text = explain("3 samples for 4 ranks", "one for each rank", "train_data()", "lower --nproc")
    assert text.splitlines() == [
        "3 samples for 4 ranks.",
        "  Must hold: one for each rank",
        "  Where: train_data()",
        "  Next: lower --nproc",
    ]


def test_explain_leaves_out_what_is_empty() -> None:
    assert explain("seen") == "seen."
    assert explain("seen.", next_step="do this").splitlines() == ["seen.", "  Next: do this"]


@pytest.mark.parametrize(
    ("kind", "family", "code"), [(UserError, ValueError, Exit.MISUSE), (RunError, RuntimeError, Exit.FAILED)]
)
def test_each_kind_has_its_exit_code(kind: type[LockstepError], family: type[Exception], code: Exit) -> None:
    error = kind("what happened")
    assert isinstance(error, LockstepError)
    assert isinstance(error, family)
    assert error.exit_code == code


@pytest.mark.parametrize("kind", [LockstepError, UserError, RunError])
def test_an_error_survives_pickling(kind: type[LockstepError]) -> None:
    back = pickle.loads(pickle.dumps(kind(explain("a", "b", "c", "d"))))
    assert type(back) is kind
    assert str(back) == explain("a", "b", "c", "d")
    assert type(kind(str(back))) is kind  # a DataLoader rebuilds it from its text


def test_an_error_not_told_apart_is_a_failure() -> None:
    assert LockstepError("x").exit_code == Exit.FAILED


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "FAILED": 1,
        "MISUSE": 2,
        "UNJUDGED": 3,
        "PREEMPTED": 75,
        "INTERRUPTED": 130,
    }
