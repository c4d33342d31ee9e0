"""A machine's report travels as text, and all of them make one."""

from lockstep.launch.record import Failure
from lockstep.launch.report import Report, from_text, merged, on_clock, to_text
from lockstep.launch.verdict import RankEnd


def failure(rank: int, kind: str = "exception", time_ns: int = 5) -> Failure:
    return Failure(rank, kind, "ValueError: ä", "a.py:3 in f", "training", "  File", time_ns, 1)  # type: ignore[arg-type]


def test_there_and_back() -> None:
    whole = Report(
        failures=(failure(2),),
        ends=(RankEnd(2, 1, False, 17, "a.py:3"), RankEnd(3, None)),
        alarm=failure(3, "stall"),
        activities={2: "waits", 3: "is done"},
        ended_by="SIGTERM",
        wrong=("differ",),
    )
    assert from_text(to_text(whole)) == whole
    assert from_text(to_text(Report())) == Report()


def test_well_is_only_what_is_done() -> None:
    done, failed = RankEnd(0, 0, done=True), RankEnd(1, 1)
    assert Report(ends=(done,)).well
    assert not Report(ends=(done, failed)).well
    assert not Report(ends=(done,), alarm=failure(0)).well
    assert not Report(ends=(done,), ended_by="SIGINT").well


def test_ranks_of_all_machines_in_order() -> None:
    one = Report(failures=(failure(3),), ends=(RankEnd(2, 0, True), RankEnd(3, 1)), activities={3: "a"}, wrong=("x",))
    two = Report(
        ends=(RankEnd(0, 0, True), RankEnd(1, None)), alarm=failure(1, "stall"), activities={1: "b"}, wrong=("x",)
    )
    whole = merged([one, two])
    assert [end.rank for end in whole.ends] == [0, 1, 2, 3]
    assert whole.alarm is not None and whole.alarm.rank == 1
    assert whole.activities == {1: "b", 3: "a"}
    stale = Report(ends=(RankEnd(0, 0, True),), activities={0: "own", 2: "heard of long ago"})
    known = Report(ends=(RankEnd(2, 1),), activities={0: "heard of long ago", 2: "own"})
    assert merged([stale, known]).activities == merged([known, stale]).activities == {0: "own", 2: "own"}
    assert whole.wrong == ("x",)
    assert not whole.well


def test_times_are_counted_by_one_clock() -> None:
    mine = Report(failures=(failure(0),), ends=(RankEnd(0, 1, time_ns=5_000_000_000), RankEnd(1, None)))
    moved = on_clock(mine, 2.0)
    assert moved.failures[0].time_ns == mine.failures[0].time_ns - 2_000_000_000
    assert [end.time_ns for end in moved.ends] == [3_000_000_000, 0]
