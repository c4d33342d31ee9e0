"""Tests of a file share a worker; programs and rules are shared out one by one; what is marked is there."""

from pathlib import Path

from tests.spread import ALONE, BY_CASE, group

TESTS = Path(__file__).parent


def test_a_file_stays_together() -> None:
    assert (
        group("tests/runtime/test_a.py::test_b[c/d]")
        == group("tests/runtime/test_a.py::Test::e")
        == "tests/runtime/test_a.py"
    )


def test_a_program_is_proven_by_one_worker() -> None:
    programs, twins = BY_CASE
    assert group(f"{programs}::test_a_wrong_program_is_caught[wrong/sum_loss]") == f"{programs}[sum_loss]"
    assert group(f"{programs}::test_step_module_and_cause_are_named[sum_loss]") == f"{programs}[sum_loss]"
    assert group(f"{programs}::test_a_right_program_is_proven[right/plain run 1]") == f"{programs}[plain run 1]"
    assert group(f"{twins}::test_after_is_silent_and_proven[LS101]") == f"{twins}[LS101]"
    assert group(f"{twins}::test_codes_are_in_order") == twins


def test_what_is_named_is_there() -> None:
    for place in ALONE:
        file, _, test = place.partition("::")
        assert (TESTS / file).exists()
        assert not test or f"def {test.partition('[')[0]}(" in (TESTS / file).read_text()
    assert all((TESTS.parent / place).is_file() for place in BY_CASE)
