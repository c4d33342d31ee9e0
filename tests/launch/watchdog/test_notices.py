"""What is worth a word: and what is not."""

from dataclasses import replace

from lockstep.launch.watchdog.notices import Notice, notices
from lockstep.launch.watchdog.sight import Sight
from tests.launch.watchdog.sights import SECOND, entry, reading, sight


def keys(*sights: Sight) -> list[str]:
    return [notice.key for notice in notices(sights)]


def only(*sights: Sight) -> Notice:
    (notice,) = notices(sights)
    return notice


def test_equal_ranks_are_not_worth_a_word() -> None:
    assert keys(sight(0, reading(20)), sight(1, reading(20))) == []
    assert keys(Sight(0), Sight(1)) == []
    assert keys() == []


def test_digests_that_differ_name_step_and_rank() -> None:
    notice = only(
        sight(0, reading(digests=((1, 7), (10, 8)))),
        sight(1, reading(digests=((1, 7), (10, 9)))),
        sight(2, reading(digests=((1, 7), (10, 8), (100, 3)))),
    )
    assert notice.wrong
    assert "The parameters of rank 1 differ from those of the other ranks after step 10" in notice.text
    assert "after step 1 they were the same" in notice.text


def test_digests_of_different_steps_are_not_compared() -> None:
    assert keys(sight(0, reading(digests=((1, 7),))), sight(1, reading(digests=((10, 9),)))) == []
    assert keys(sight(0, reading(digests=((1, 7),))), Sight(1)) == []


def late(rank: int, lag_s: float, pace_s: float = 0.2) -> Sight:
    ends = [(n, int(n * pace_s * SECOND), int((n * pace_s + lag_s) * SECOND)) for n in range(20)]
    return sight(rank, reading(20, steps=tuple(ends)))


def test_a_rank_that_is_always_last() -> None:
    notice = only(late(0, 0.0), late(1, 0.1), late(2, 0.0))
    assert notice.key == "straggler" and not notice.wrong
    assert "Rank 1 is the last in 16 of 16 steps: the others wait 0.10 s of a step of 0.20 s" in notice.text
    assert keys(late(0, 0.0), late(1, 0.02)) == [], "too little to speak of"
    assert keys(*(replace(one, marks=replace(one.marks, count=0)) for one in (late(0, 0.0), late(1, 0.1)))) == []
    assert keys(late(0, 0.0, pace_s=2.0), late(1, 0.1, pace_s=2.0)) == [], "little beside the step"


def test_ranks_that_take_turns_are_no_stragglers() -> None:
    def turns(rank: int) -> Sight:
        steps = [(n, n * SECOND, int((n + 0.5 * (n % 2 == rank)) * SECOND)) for n in range(20)]
        return sight(rank, reading(20, steps=tuple(steps)))

    assert keys(turns(0), turns(1)) == []


def test_slow_data() -> None:
    slow = sight(1, reading(20, pace_s=0.2, data_ns=int(20 * 0.15 * SECOND)))
    fast = sight(0, reading(20, pace_s=0.2))
    assert keys(fast, slow) == ["slow data"]
    assert keys(fast, sight(1, reading(20, pace_s=0.2, data_ns=SECOND // 10))) == []
    assert keys(sight(0, reading(5, pace_s=0.2, data_ns=20 * SECOND))) == [], "the first steps are not judged"


def test_a_rank_that_passed_over_a_step() -> None:
    def one(rank: int, step: int) -> Sight:
        return sight(rank, reading(6, entries=(entry(5, step=4), entry(6, step=step))))

    notice = only(one(0, 5), one(1, 4))
    assert notice.wrong and notice.key == "out of step"
    assert notice.text.startswith("Rank 1 passed over a step")
    assert keys(one(0, 5), one(1, 5)) == []
    wild = sight(1, reading(6, entries=(entry(6, step=4),), comparable=False))
    assert keys(one(0, 5), wild) == []
