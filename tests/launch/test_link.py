"""What one launcher concludes from what it hears of the other machines."""

import math

import pytest

from lockstep.launch.link import Link
from lockstep.launch.nodes.meeting import Meeting
from lockstep.launch.record import Failure
from lockstep.launch.report import Report, to_text
from lockstep.launch.verdict import RankEnd

WELL = to_text(Report(ends=(RankEnd(1, 0, done=True),)))
FAILED = to_text(Report(ends=(RankEnd(1, 1),), failures=(Failure(1, "exception", "x", "", "", "", 1, 1),)))


class Two(Meeting):
    """The other machine, node 1, as a test wants it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.num_nodes = 2
        self.silent_s = 0.0
        self.report: str | None = None

    def heard(self) -> dict[int, tuple[float, str]]:
        return {1: (self.silent_s, "")}

    def finished(self, attempt: int, wait_s: float = 0.0) -> dict[int, str]:
        return {} if self.report is None else {1: self.report}


def make(monkeypatch: pytest.MonkeyPatch, until: object = None) -> tuple[Two, Link]:
    monkeypatch.setattr("lockstep.launch.link._POLL_S", 0.0)
    meeting = Two()
    return meeting, Link(meeting, 0, 60.0, until)  # type: ignore[arg-type]


def test_one_machine_asks_its_caller_only() -> None:
    answers = iter(["", "enough", "never asked"])
    link = Link(Meeting(2), 0, 60.0, lambda: next(answers))
    assert [link.cut_short(), link.cut_short()] == ["", "enough"]
    assert link.cut == "enough"
    assert link.reports(True, lambda: False) == []


def test_another_machine_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, link = make(monkeypatch)
    assert link.cut_short() == ""
    meeting.report = WELL
    assert link.cut_short() == ""
    meeting.report = FAILED
    assert link.cut_short() == "another machine has failed"
    assert link.cut == ""  # not the caller's
    (report,) = link.reports(False, lambda: False)
    assert report.failures[0].message == "x"


def test_silence_is_told_and_then_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meeting, link = make(monkeypatch)
    meeting.silent_s = 9.0
    assert link.cut_short() == "" and capsys.readouterr().err == ""
    meeting.silent_s = 12.0
    assert [link.cut_short(), link.cut_short()] == ["", ""]
    said = capsys.readouterr().err
    assert said.count("Node 1 has not been heard for 12 s") == 1 and "ended after 60 s" in said
    meeting.silent_s = 0.5
    assert link.cut_short() == "" and "Node 1 is heard again" in capsys.readouterr().err
    meeting.silent_s = 61.0
    assert link.cut_short() == "Node 1 has not been heard for 61 s"
    assert link.alarm is not None and "the link is down" in link.alarm.message
    assert [report.alarm for report in link.reports(False, lambda: True)] == [link.alarm]


def test_a_launcher_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, link = make(monkeypatch)
    meeting.silent_s = math.inf
    assert link.cut_short() == "Node 1 is gone"
    assert link.alarm is not None and "has died" in link.alarm.message


def test_one_that_is_done_may_fall_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, link = make(monkeypatch)
    meeting.report, meeting.silent_s = WELL, math.inf
    assert link.cut_short() == ""
    assert [report.well for report in link.reports(True, lambda: False)] == [True]


def test_a_lost_connection_is_explained_by_the_machine_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, link = make(monkeypatch)
    meeting.silent_s = math.inf
    assert [report.alarm for report in link.reports(False, lambda: False, cut_off=True)] == [link.alarm]
    assert link.alarm is not None and "Node 1 is gone" in link.alarm.message
    monkeypatch.setattr("lockstep.launch.link._WAIT_S", 0.1)
    other = Link(meeting, 0, 60.0, None)
    assert other.reports(False, lambda: False) == [], "a rank that failed by itself is the cause, whoever is gone now"
