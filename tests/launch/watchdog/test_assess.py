"""Who is stuck, and what is certain: from sights made by hand."""

from dataclasses import replace

import pytest

from lockstep.launch.watchdog import Limits
from lockstep.launch.watchdog.assess import assess, cause, culprits
from lockstep.launch.watchdog.sight import Sight
from lockstep.trace.progress import Phase
from tests.launch.watchdog.sights import entry, reading, sight, waiting

LIMITS = Limits(deadline_s=60.0)


def test_all_that_advance_are_left_alone() -> None:
    assert assess([sight(0), sight(1), waiting(2, silent_s=3.0)], LIMITS) is None
    assert assess([], LIMITS) is None


def test_the_rank_that_the_others_wait_for_is_named_and_not_they() -> None:
    alarm = assess([waiting(0), sight(1, silent_s=9.0), waiting(2)], LIMITS)
    assert alarm is not None
    assert (alarm.kind, alarm.ranks, alarm.certain, alarm.silent_s) == ("stall", (1,), False, 9.0)


def test_who_waits_is_not_named_while_the_other_one_works() -> None:
    assert assess([waiting(0, silent_s=500.0), sight(1, silent_s=1.0)], LIMITS) is None


def test_it_ends_at_the_deadline_and_not_before() -> None:
    for silent_s, certain in ((59.0, False), (61.0, True)):
        alarm = assess([waiting(0, silent_s), sight(1, silent_s=silent_s)], LIMITS)
        assert alarm is not None and alarm.certain is certain
    alarm = assess([waiting(0, 1e6), sight(1, silent_s=1e6)], Limits(deadline_s=0))
    assert alarm is not None and not alarm.certain


def test_the_deadline_gives_way_to_what_may_take_longer() -> None:
    evaluates = [waiting(0, 50.0), sight(1, reading(evaluating=True), 50.0)]
    assert assess(evaluates, Limits(deadline_s=10.0)) is None


def test_before_the_first_steps_nothing_is_ended_unless_it_is_asked_for() -> None:
    young = [sight(0, reading(0), 700.0), sight(1, reading(0), 700.0)]
    alarm = assess(young, LIMITS)
    assert alarm is not None and not alarm.certain
    alarm = assess(young, Limits(deadline_s=60.0, from_start=True))
    assert alarm is not None and alarm.certain


def test_one_that_has_marked_nothing_is_waited_for() -> None:
    alarm = assess([waiting(0, 130.0), Sight(1, silent_s=130.0)], LIMITS)
    assert alarm is not None and alarm.ranks == (1,)
    assert culprits([waiting(0), Sight(1)]) == [Sight(1)]


def test_all_in_the_same_collective() -> None:
    alarm = assess([waiting(0), waiting(1)], LIMITS)
    assert alarm is not None and (alarm.kind, alarm.ranks) == ("together", (0, 1))
    assert assess([waiting(0), waiting(1, silent_s=1.0)], LIMITS) is None, "the second has just come"


def test_one_that_has_come_back_is_named_before_those_still_inside() -> None:
    back = sight(1, reading(6), 9.0)
    alarm = assess([waiting(0), back], LIMITS)
    assert (alarm is not None and (alarm.kind, alarm.ranks) == ("stall", (1, 0))) or alarm.ranks[0] == 1


def test_a_stopped_rank_is_certain_at_once_an_ended_one_is_not_stopped() -> None:
    alarm = assess([sight(0), sight(1, stopped=True)], LIMITS)
    assert alarm is not None and (alarm.kind, alarm.ranks, alarm.certain) == ("stopped", (1,), True)
    assert assess([sight(0), sight(1, stopped=True, ended=True)], LIMITS) is None


def called(rank: int, op: str, about: str = "", silent_s: float = 1.5) -> Sight:
    return sight(rank, reading(6, inside=6, last=entry(6, op, about, "a/b.py:4")), silent_s)


@pytest.mark.parametrize(
    ("sights", "odd"),
    [
        ([called(0, "gradients"), called(1, "barrier"), called(2, "gradients")], (1,)),
        ([called(0, "gradients"), called(1, "barrier")], (1,)),
        ([called(0, "barrier"), called(1, "gradients")], (0,)),
        ([called(0, "broadcast", "float32[4]"), called(1, "all_reduce", "float32[4]")], (1,)),
        ([called(0, "all_reduce", "float32[4]"), called(1, "all_reduce", "float32[5]")], (1,)),
        ([called(rank, "all_reduce", f"float32[{rank}]") for rank in range(3)], (0, 1, 2)),
    ],
)
def test_collectives_that_do_not_fit(sights: list[Sight], odd: tuple[int, ...]) -> None:
    alarm = assess(sights, LIMITS)
    assert alarm is not None
    assert (alarm.kind, alarm.ranks, alarm.certain) == ("mismatch", odd, True)
    assert [rank for rank, _ in alarm.sides] == list(range(len(sights)))


def test_the_first_difference_counts_and_only_what_both_have_called() -> None:
    ahead = sight(0, reading(9, last=entry(9, "barrier")))
    assert assess([ahead, sight(1, reading(8))], LIMITS) is None
    one = reading(9, entries=(entry(7, "barrier"), entry(8, "barrier"), entry(9)))
    two = reading(9, entries=(entry(7, "broadcast"), entry(8, "broadcast"), entry(9)))
    alarm = assess([sight(0, one), sight(1, two)], LIMITS)
    assert alarm is not None and {one.number for _, one in alarm.sides} == {7}


def test_what_the_wrapper_does_is_concluded_so_a_difference_must_hold_a_rank() -> None:
    both = [called(0, "gradients", silent_s=0.5), called(1, "barrier", silent_s=0.5)]
    assert assess(both, LIMITS) is None, "they may come back"
    past = reading(9, entries=(entry(7, "barrier"), entry(8, "gradients"), entry(9)))
    assert assess([sight(0, past), sight(1, reading(9))], LIMITS) is None, "they came past it"
    ended = replace(called(0, "gradients", silent_s=0.0), ended=True)
    assert cause([ended, called(1, "barrier", silent_s=0.0)]) is not None


def test_one_that_came_out_of_what_does_not_fit_is_no_excuse() -> None:
    """gloo: rank 0's own all_reduce took the others' gradients for its partner, and returned."""
    past = reading(7, inside=7, entries=(entry(6, "all_reduce", "float32[1]", "a/b.py:4"), entry(7)))
    alarm = assess([sight(0, past, 1.5), waiting(1, 1.5), waiting(2, 1.5)], LIMITS)
    assert alarm is not None and (alarm.kind, alarm.ranks) == ("mismatch", (0,))


def test_a_rank_that_is_done_before_the_others_have_joined() -> None:
    joins = sight(0, reading(0, phase=Phase.JOIN, steps=(), entries=()), 6.0)
    alarm = assess([joins, sight(1, reading(0, steps=(), entries=()), ended=True, done=True)], LIMITS)
    assert alarm is not None and (alarm.kind, alarm.ranks) == ("left", (1,))


def test_queued_collectives_are_waited_for_elsewhere() -> None:
    """nccl: the call has come back, and the rank waits in `.item()`."""
    waits = sight(0, reading(6, queued=True), 3.0)
    alarm = assess([waits, sight(1, reading(5, queued=True), ended=True, done=True)], LIMITS)
    assert alarm is not None and (alarm.kind, alarm.ranks) == ("left", (1,))


def test_after_the_work_of_one_another_may_have_more_to_do() -> None:
    busy = sight(0, reading(5), 20.0)
    assert assess([busy, sight(1, ended=True, done=True)], LIMITS) is None


def test_under_join_ranks_may_differ() -> None:
    both = [called(0, "gradients"), sight(1, reading(6, last=entry(6, "barrier"), comparable=False))]
    assert assess(both, LIMITS) is None


def test_a_rank_that_is_done_while_others_wait_for_it() -> None:
    gone = sight(1, ended=True, done=True)
    alarm = assess([waiting(0, silent_s=2.5), gone], LIMITS)
    assert alarm is not None and (alarm.kind, alarm.ranks, alarm.certain) == ("left", (1,), True)
    assert assess([waiting(0, silent_s=1.0), gone], LIMITS) is None, "its answer may be on the way"
    found = cause([waiting(0, silent_s=0.1), gone])
    assert found is not None and found.kind == "left"


def test_a_rank_that_takes_its_group_down_has_left_too() -> None:
    leaves = sight(1, reading(5, phase=Phase.END), 3.0)
    alarm = assess([waiting(0, silent_s=3.0), leaves], LIMITS)
    assert alarm is not None and (alarm.kind, alarm.ranks) == ("left", (1,))
    assert assess([sight(0, reading(5, phase=Phase.END), 3.0), leaves], LIMITS) is None


def test_a_rank_that_is_done_is_not_missed_by_one_that_works_alone() -> None:
    assert assess([sight(0, silent_s=3.0), sight(1, ended=True, done=True)], LIMITS) is None
    assert cause([sight(0), sight(1)]) is None
