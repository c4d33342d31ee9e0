from typing import Any

import pytest

from lockstep.core.outcome import Exit
from lockstep.launch.record import Failure
from lockstep.launch.verdict import RankEnd, describe, judge, signal_text


def failure(rank: int, kind: Any = "exception", message: str = "ValueError: no", **more: Any) -> Failure:
    parts: dict[str, Any] = {"where": "", "phase": "", "traceback": "", "time_ns": rank, "exit_code": 1} | more
    return Failure(rank=rank, kind=kind, message=message, **parts)


def lost(rank: int, **more: Any) -> Failure:
    return failure(rank, "consequence", "RuntimeError: [gloo] Connection closed by peer", **more)


def test_all_done_says_nothing() -> None:
    verdict = judge([], [RankEnd(0, 0, True), RankEnd(1, 0, True)])
    assert (verdict.text, verdict.exit) == ("", Exit.DONE)


def test_a_cause_beats_an_earlier_consequence() -> None:
    ends = [RankEnd(rank, 1) for rank in range(3)]
    verdict = judge([lost(0, time_ns=1), failure(1, time_ns=9, where="a.py:3 in loss"), lost(2)], ends)
    assert verdict.text.startswith("Rank 1 failed first: ValueError: no\n  Where: a.py:3 in loss\n")
    assert "  Others: ranks 0, 2: lost the connection (a consequence)\n" in verdict.text
    assert verdict.exit is Exit.FAILED


def test_the_earliest_cause_is_named_and_the_other_told() -> None:
    verdict = judge(
        [failure(0, time_ns=5), failure(1, message="KeyError: 'a'", time_ns=4)], [RankEnd(0, 1), RankEnd(1, 1)]
    )
    assert verdict.text.startswith("Rank 1 failed first: KeyError: 'a'")
    assert "Others: rank 0: ValueError: no" in verdict.text


def test_every_part_of_the_block() -> None:
    one = failure(
        1, where="a.py:3 in loss", phase="training, step 3", traceback='  File "a.py", line 3, in loss\n    no'
    )
    verdict = judge([one], [RankEnd(0, None), RankEnd(1, 1), RankEnd(2, 0, True)], logs="runs/x/logs")
    assert verdict.text.split("\n") == [
        "Rank 1 failed: ValueError: no",
        "  Where: a.py:3 in loss",
        "  While: training, step 3",
        "  Others: rank 0: ended by the launcher; rank 2: done",
        "  Next: mend that line; run it with `--nproc 1` to see whether one process alone fails in the same way",
        "  Logs: runs/x/logs",
        "  Traceback (your frames only):",
        '    File "a.py", line 3, in loss',
        "      no",
    ]


@pytest.mark.parametrize("ranks, lead", [([0, 1, 2], ""), ([0, 2], "Ranks 0, 2: "), ([1], "Rank 1: ")])
def test_an_explained_error_is_shown_once_as_it_is(ranks: list[int], lead: str) -> None:
    told = [failure(rank, "user", "The dataset is empty.\n  Next: check", exit_code=2) for rank in ranks]
    verdict = judge(told, [RankEnd(rank, 2 if rank in ranks else None) for rank in range(3)])
    assert verdict.text == f"{lead}The dataset is empty.\n  Next: check"
    assert verdict.exit is Exit.MISUSE


def test_a_run_error_is_shown_as_it_is_with_its_own_code() -> None:
    verdict = judge([failure(0, "run", "The disk is full.", exit_code=1)], [RankEnd(0, 1)])
    assert (verdict.text, verdict.exit) == ("The disk is full.", Exit.FAILED)


@pytest.mark.parametrize(
    "code, words",
    [
        (-9, "was killed by SIGKILL (by the kernel's out-of-memory killer, or by hand)"),
        (-11, "crashed with a segmentation fault (SIGSEGV)"),
        (-10, "was ended by SIGUSR1"),
        (3, "exited with code 3 without a message"),
        (0, "left early: its process ended with code 0 before its work was done"),
    ],
)
def test_a_rank_without_a_record(code: int, words: str) -> None:
    verdict = judge([lost(0)], [RankEnd(0, 1), RankEnd(1, code, time_ns=99)])
    assert verdict.text.split("\n")[0] == f"Rank 1 {words}"
    assert verdict.exit is Exit.FAILED


def test_a_crash_names_the_users_line() -> None:
    assert "  Where: a.py:7 in read\n" in judge([], [RankEnd(0, -11, where="a.py:7 in read")]).text


def test_the_users_own_exit_code_is_not_ours() -> None:
    assert judge([failure(0, "exit", "called sys.exit(75)", exit_code=75)], [RankEnd(0, 75)]).exit is Exit.FAILED


def test_done_then_aborted_is_success() -> None:
    verdict = judge([], [RankEnd(0, 0, True), RankEnd(1, -6, True)])
    assert verdict.text == (
        "Rank 1 was done, then aborted in tear-down: its process aborted (SIGABRT). Its work is complete."
    )
    assert verdict.exit is Exit.DONE


def test_done_then_aborted_does_not_hide_a_failure() -> None:
    verdict = judge([failure(0)], [RankEnd(0, 1), RankEnd(1, -6, True)])
    assert verdict.text.startswith("Rank 0 failed: ValueError: no")
    assert verdict.exit is Exit.FAILED


def test_only_consequences() -> None:
    verdict = judge([lost(0), lost(1)], [RankEnd(0, 1), RankEnd(1, 1)])
    assert verdict.text.startswith("Rank 0 lost its connection to the other ranks: RuntimeError: [gloo]")
    assert "no rank reported a cause of its own" in verdict.text
    assert verdict.exit is Exit.FAILED


def test_a_rank_that_ended_while_others_waited_is_named() -> None:
    verdict = judge([lost(0)], [RankEnd(0, 1), RankEnd(1, 0, True)])
    assert verdict.text.startswith("Rank 1 ended before the others, which still waited:")


def test_interrupted() -> None:
    assert judge([failure(0, "interrupt", "Interrupted.", exit_code=130)], [RankEnd(0, 130)]).exit is Exit.INTERRUPTED


def test_describe_without_a_launcher() -> None:
    assert describe(failure(0, "user", "Empty.", exit_code=2), 1) == "Empty."
    assert describe(failure(1, "user", "Empty.", exit_code=2), 2) == "Rank 1: Empty."
    assert describe(failure(1, traceback="  there"), 2).startswith("Rank 1 failed: ValueError: no\n  Next:")
    assert describe(failure(0), 1).startswith("The run failed: ValueError: no")


def test_an_unknown_signal_has_its_number() -> None:
    assert signal_text(-250) == "was ended by signal 250"
