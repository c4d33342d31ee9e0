"""An alarm in words, as the user reads it."""

import pytest

from lockstep.launch.watchdog import Limits, words
from lockstep.launch.watchdog.assess import Alarm, assess
from lockstep.launch.watchdog.sight import Sight
from lockstep.trace.progress import Phase
from tests.launch.watchdog.sights import entry, reading, sight, waiting

LIMITS = Limits(deadline_s=60.0)
DATA, STEP = Phase.DATA, Phase.STEP


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (entry(3), "the all_reduce of the gradients of step 2, backward (train.py:9)"),
        (entry(3, "buffers"), "the broadcast of the buffers before step 2, forward (train.py:9)"),
        (entry(3, "all_reduce", "float32[4]"), "all_reduce of float32[4] (train.py:9)"),
        (entry(3, "barrier", place=""), "barrier"),
        (entry(3, "barrier", place="/usr/bin/lockstep:8"), "barrier"),
    ],
)
def test_a_collective(made: object, text: str) -> None:
    assert words.entry_text(made) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (waiting(0), "waits in the all_reduce of the gradients of step 5, backward (train.py:9)"),
        (sight(0, spot="a.py:3 in f", doing="sleeps"), "in a.py:3 in f (after step 5); sleeps"),
        (sight(0, reading(phase=DATA), spot="a.py:3"), "in a.py:3 (waiting for the next batch, after step 5)"),
        (sight(0, reading(evaluating=True), spot="a.py:3 in f"), "in a.py:3 in f (evaluation, after step 5)"),
        (sight(0, reading(0, phase=STEP), spot="a.py:3"), "in a.py:3 (optimizer step, before the first step)"),
        (sight(0, doing="is in backward"), "is in backward (after step 5)"),
        (sight(0, reading(phase=Phase.SAVE)), "is in saving (after step 5)"),
        (sight(0, reading(now="send\t/a/b.py:4")), "waits in send (b.py:4)"),
        (sight(0, ended=True, done=True), "is done and has ended"),
        (sight(0, reading(phase=Phase.FORWARD), ended=True), "was in forward (after step 5)"),
        (sight(0, reading(5, inside=5, last=entry(5, "barrier")), ended=True), "was in barrier (train.py:9)"),
        (Sight(0), "has not begun"),
        (Sight(0, spot="a.py:1 in f"), "has not begun: in a.py:1 in f"),
        (Sight(0, ended=True), "has ended"),
    ],
)  # fmt: skip
def test_what_a_rank_does(seen: Sight, text: str) -> None:
    assert words.activity(seen) == text


def alarm_of(sights: list[Sight]) -> Alarm:
    alarm = assess(sights, LIMITS)
    assert alarm is not None
    return alarm


def test_a_report_names_rank_line_and_those_who_wait() -> None:
    sights = [waiting(0), sight(1, silent_s=9.0, spot="data.py:88 in load_image", doing="sleeps"), waiting(2)]
    assert words.report(alarm_of(sights), sights, LIMITS) == (
        "Rank 1 does not advance since 9 s: in data.py:88 in load_image (after step 5); sleeps.\n"
        "  Others: ranks 0, 2 wait in the all_reduce of the gradients of step 5, backward (train.py:9)\n"
        "  Next: if this work is meant to take so long, nothing: the others wait for it; else mend that line\n"
        "  The run is ended after 60 s without progress (--stall-timeout)."
    )
    assert words.where(alarm_of(sights), sights) == "data.py:88 in load_image"


def test_a_mismatch_shows_both_sides() -> None:
    sights = [
        waiting(0),
        sight(1, reading(6, inside=6, last=entry(6, "barrier", place="x/eval.py:7")), 2.0),
        waiting(2),
    ]
    alarm = alarm_of(sights)
    assert words.headline(alarm, sights) == "called another collective than the other ranks"
    assert words.where(alarm, sights) == "barrier (eval.py:7) (its collective number 6)"
    assert words.others(alarm, sights) == (
        "ranks 0, 2 called the all_reduce of the gradients of step 5, backward (train.py:9)"
    )
    assert "LS113" in words.advice(alarm, sights)


def test_one_that_left_is_told_by_its_last_line() -> None:
    ended = [waiting(0), sight(1, ended=True, done=True)]
    assert words.headline(alarm_of(ended), ended).startswith("left early: done after step 5")
    assert words.where(alarm_of(ended), ended) == (
        "the all_reduce of the gradients of step 4, backward (train.py:9) was its last collective"
    )
    by_sys_exit = [waiting(0), sight(1, ended=True, done=True, spot="train.py:30 in main")]
    assert words.where(alarm_of(by_sys_exit), by_sys_exit) == "train.py:30 in main"
    hangs_in_the_end = [waiting(0), sight(1, reading(phase=Phase.END), 9.0, spot="train.py:70 in <module>")]
    assert "last collective" in words.where(alarm_of(hangs_in_the_end), hangs_in_the_end)


def test_all_in_one_collective_is_a_matter_of_the_connection() -> None:
    sights = [waiting(0), waiting(1)]
    alarm = alarm_of(sights)
    assert words.headline(alarm, sights).startswith("are all in the all_reduce of the gradients of step 5")
    assert "lockstep doctor" in words.advice(alarm, sights)
    assert words.others(alarm, sights) == ""


def test_advice_goes_with_the_phase() -> None:
    for marks, must in ((reading(phase=Phase.DATA), "workers"), (reading(evaluating=True), "evaluation")):
        sights = [waiting(0, 99.0), sight(1, marks, 99.0)]
        assert must in words.advice(alarm_of(sights), sights)
