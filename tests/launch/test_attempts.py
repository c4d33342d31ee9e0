"""Restarts, signals and the machine's own limits: one launch, from the inside of the launcher."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from lockstep.core.outcome import Exit
from lockstep.launch import stop_asked
from lockstep.launch.attempts import Outcome
from lockstep.launch.local import run_local
from lockstep.launch.supervision import Supervision
from lockstep.launch.watchdog import Limits
from tests.ranks import run_ranks

WATCHED = Supervision(limits=Limits())


def fails_until(attempt: int) -> None:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != str(attempt) and os.environ["RANK"] == "1":
        os._exit(3)


def until_asked(folder: str) -> None:
    Path(folder, os.environ["RANK"]).touch()
    while not stop_asked():
        signal.sigtimedwait([signal.SIGUSR2], 0.01)


def attempts(tmp: str, attempt: int, restarts: int) -> Outcome:
    supervision = Supervision(limits=Limits(), restarts=restarts)
    return run_local(fails_until, (attempt,), 2, work_dir=Path(tmp), start_method="fork", supervision=supervision)


@pytest.mark.parametrize(("needed", "given", "exit_"), [(0, 2, Exit.DONE), (2, 2, Exit.DONE), (3, 2, Exit.FAILED)])
def test_as_often_as_asked_for_and_no_more(tmp_path: Path, needed: int, given: int, exit_: Exit) -> None:
    (outcome,) = run_ranks(attempts, 1, str(tmp_path), needed, given)
    assert outcome.verdict.exit == exit_
    assert [end.rank for end in outcome.ends] == [0, 1]


def asked(tmp: str, number: int) -> Outcome:
    def when_ready() -> None:
        while not all(Path(tmp, rank).exists() for rank in "01"):
            threading.Event().wait(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=when_ready, daemon=True).start()
    supervision = Supervision(limits=Limits(), restarts=1, saves=True)
    return run_local(until_asked, (tmp,), 2, work_dir=Path(tmp), start_method="fork", supervision=supervision)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_ranks_that_save_are_asked_and_end_by_themselves(tmp_path: Path, number: signal.Signals) -> None:
    (outcome,) = run_ranks(asked, 1, str(tmp_path), int(number))
    assert outcome.verdict.exit == Exit.DONE  # they had nothing left to do
    assert all(end.done for end in outcome.ends) and outcome.ended_by is None


def nothing() -> None:
    assert "LOCKSTEP_FAILURES" in os.environ


def quick(tmp: str) -> tuple[Outcome, list[str]]:
    outcome = run_local(nothing, (), 3, work_dir=Path(tmp, "run"), start_method="fork", supervision=WATCHED)
    return outcome, [child.name() for child in psutil.Process().children(recursive=True)]


def test_nothing_is_left_of_a_run_that_ended_well(tmp_path: Path) -> None:
    ((outcome, children),) = run_ranks(quick, 1, str(tmp_path))
    assert (outcome.verdict.exit, outcome.verdict.text, children) == (Exit.DONE, "", [])
    assert not (tmp_path / "run").exists()
