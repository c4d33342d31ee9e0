"""The verdict, the next thing, and text that cannot leave its place."""

from dataclasses import replace

import pytest

from lockstep.core.finding import Finding, Place, Severity, Witness
from lockstep.core.proof import Cause, Difference, Proof, Rung, Status
from lockstep.core.report import words
from tests.core.report.examples import BYPASS, NORM, SAVE, example_proof, passed


@pytest.mark.parametrize("state", Status)
def test_the_word_for_the_whole_is_that_of_the_rung_that_decides(state: Status) -> None:
    assert words.status(example_proof(state)) is state


def test_a_proof_without_rungs_is_none() -> None:
    empty = Proof("a.py", "b.py", 2, ())
    assert words.status(empty) is Status.ABSTAIN
    assert words.verdict(empty) == "Nothing is known about a.py on 2 ranks: no rung was run."
    assert words.next_step(empty) == "run the ladder."


def test_the_verdict_says_what_is_proven_and_what_was_accepted() -> None:
    proof = passed()
    assert "is the same training as train.py --epochs 3, but for" in words.verdict(proof)
    assert "(LS116)" in words.verdict(proof)  # LS203 is accepted too, but was not found
    assert words.verdict(replace(proof, accepted=())).endswith("is the same training as train.py --epochs 3.")


def test_the_next_thing_is_the_likeliest_cause_of_the_first_broken_rung() -> None:
    sure, maybe = Cause("a", "do a", confirmed=True), Cause("b", "do b")
    wrong = Cause("c", "do c", confirmed=False)
    note = replace(SAVE, next_step="do the note")
    error = replace(BYPASS, next_step="do the error")
    there = (Difference(0, "loss", place=Place("x.py", 3)),)

    def after(causes: tuple[Cause, ...], findings: tuple[Finding, ...]) -> str:
        broken = Rung("mirror", Status.FAIL, "s", there, causes, findings)
        later = Rung("shard", Status.FAIL, "s", (), (Cause("z", "do z"),))
        return words.next_step(Proof("p", "r", 2, (Rung("one process", Status.PASS, ""), broken, later)))

    assert after((maybe, sure), (error,)) == "do a"
    assert after((wrong, maybe), (error,)) == "do b"
    assert after((wrong,), (note, error)) == "do the error"
    assert after((), ()) == "look at x.py:3, where the first difference is seen."


def test_without_a_break_the_next_thing_is_about_what_could_not_be_judged_or_is_open() -> None:
    assert words.next_step(example_proof(Status.ABSTAIN)) == "run it again with a GPU: --device cuda."
    assert words.next_step(passed()).startswith("nothing has to change. Worth doing: save to a temporary name")
    rung = Rung("mirror", Status.PASS, "equal", findings=(NORM,))
    assert words.next_step(Proof("p", "r", 2, (rung,), accepted=("LS116",))).startswith(
        "nothing. The proof holds until"
    )


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert words.clean("a\x1b[31mb\x07\x9b\x7f") == r"a\x1b[31mb\x07\x9b\x7f"
    assert words.clean("\udcff\u202ex") == r"\udcff\u202ex"
    assert words.clean("line\n\tähm 数据 e\u0301") == "line\n\tähm 数据 e\u0301"
    words.clean("".join(map(chr, range(0x3000))) + "\ud800").encode("utf-8")


def test_sides_places_and_differences_in_words() -> None:
    assert words.side(Witness("t", 1, 3)) == "rank 1, step 3"
    assert words.side(Witness("t")) == ""
    assert words.shown(Place("/a/b/c.py", 3), "/a") == "b/c.py:3"
    assert words.shown(Place("/ab/c.py", 3), "/a") == "/ab/c.py:3"
    assert words.shown(Place("c.py")) == "c.py"
    assert words.where_it_differs(Difference(3, "gradient", "W.Bias", 1)) == "step 3, gradient of W.Bias, rank 1"
    assert words.where_it_differs(Difference(0, "loss")) == "step 0, loss"


def test_counts() -> None:
    assert [words.count(n, "pass") for n in (1, 60_000)] == ["1 pass", "60,000 passes"]
    assert words.tally([SAVE, BYPASS, SAVE]) == "1 error, 2 notes"
    assert words.tally([]) == ""
    assert [words.seconds_text(one) for one in (0.04, 12.3, 200.0, float("inf"))] == [
        "0.0 s", "12 s", "3 min 20 s", "inf s",
    ]  # fmt: skip
    assert words.by_weight([SAVE, NORM, BYPASS])[0].severity is Severity.ERROR
