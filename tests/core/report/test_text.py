"""The report in a terminal: what comes first, what fits, and that nothing depends on colour."""

import re
from dataclasses import replace

import pytest

from lockstep.core.proof import Proof, Status
from lockstep.core.report.text import text
from tests.core.report.examples import BYPASS, ROOT, example_proof, hostile

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("state", Status)
def test_the_verdict_comes_first_then_the_next_thing_then_the_ladder(state: Status) -> None:
    proof = example_proof(state)
    lines = text(proof, width=200, root=ROOT).splitlines()
    assert lines[0].startswith(f"{state}: ")
    assert lines[1].startswith("Next: ")
    assert lines[2] == ""
    rungs = lines[3 : 3 + len(proof.rungs)]
    assert [line.split()[0] for line in rungs] == [rung.status for rung in proof.rungs]
    assert all(rung.name in line and rung.said in line for rung, line in zip(proof.rungs, rungs, strict=True))


def test_a_break_shows_both_values_the_line_the_cause_and_both_sides() -> None:
    shown = text(example_proof(Status.FAIL), root=ROOT)
    for part in (
        "First difference: step 0, gradient of 0.weight, rank 1 (train_ddp.py:28)",
        "    28 | loss = torch.nn.functional.cross_entropy(model(inputs), targets)",
        "  run        norm 0.5031 [0.0121, -0.0377, ...]",
        "  reference  norm 0.4402 [0.0098, -0.0251, ...]",
        "relative error 0.724",
        "Cause LS101 (confirmed): The forward called",
        "LS101 error: At step 0 the gradients",
        "rank 0, step 0, train_ddp.py:28: gradient of 0.weight has norm 0.4127",
        "train_ddp.py:18: the wrapper that was not called",
        "and 1 more place",
        "LS307 note:",
        "2 later differences, 1 other cause: --html FILE or --json FILE writes all of it.",
    ):
        assert part in shown, part
    assert "divided by another count" not in shown  # refuted


def test_the_next_thing_is_not_said_twice() -> None:
    assert text(example_proof(Status.FAIL)).count(BYPASS.next_step) == 1


@pytest.mark.parametrize("state", Status)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_colour_adds_no_word_and_lines_keep_their_width(state: Status, width: int) -> None:
    proof = example_proof(state)
    plain = text(proof, width=width, root=ROOT)
    coloured = text(proof, colour=True, width=width, root=ROOT)
    assert COLOURS.sub("", coloured) == plain
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert max(map(len, plain.splitlines())) <= width


def test_many_findings_are_a_screenful_and_the_rest_is_counted() -> None:
    proof = example_proof(Status.FAIL)
    many = tuple(replace(BYPASS, code=f"LS{number}", next_step=f"do {number}") for number in range(110, 150))
    broken = replace(proof.rungs[-1], findings=many)
    shown = text(replace(proof, rungs=(*proof.rungs[:-1], broken)), width=100, root=ROOT, more="see r.html")
    assert len(shown.splitlines()) <= 45
    left = re.search(r"(\d+) errors not shown, 2 later differences, 1 other cause: see r.html\.$", shown)
    assert left
    assert int(left[1]) == 40 - shown.count(" error: ")


def test_a_path_that_is_too_long_stays_whole() -> None:
    place = replace(BYPASS.witnesses[0].place, path="/very/long" * 20 + "/x.py")  # type: ignore[type-var]
    finding = replace(BYPASS, witnesses=(replace(BYPASS.witnesses[0], place=place),))
    proof = example_proof(Status.FAIL)
    shown = text(replace(proof, rungs=(replace(proof.rungs[-1], findings=(finding,)),)), width=60)
    assert f"{place}:" in shown


def test_hostile_text_sends_nothing_to_the_terminal() -> None:
    shown = text(hostile(), width=80)
    assert r"\x1b[31m\x00\u202e\udcff äöü 数据" in shown
    assert shown.replace("\n", "").isprintable()
    shown.encode("utf-8")


def test_an_empty_proof_is_shown_too() -> None:
    assert text(Proof("a.py", "b.py", 2, ())).startswith("ABSTAIN: Nothing is known about a.py on 2 ranks")
