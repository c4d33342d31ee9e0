"""How long a rank may be silent, and its way to another machine."""

import json

import pytest

from lockstep.launch.watchdog import Limits
from lockstep.launch.watchdog.sight import Sight, from_json, to_json
from lockstep.trace.progress import Phase
from tests.launch.watchdog.sights import entry, reading, sight

LIMITS = Limits()


def test_the_pace_is_that_of_most_steps_and_known_from_the_third_on() -> None:
    assert [sight(0, reading(count)).pace_s for count in (0, 1, 2, 3)] == [None, None, None, 1.0]
    ends = [0, 1, 2, 3, 13, 14, 15, 16, 17, 18]  # one step of ten seconds among many
    marks = reading(steps=tuple((n, end * 10**9, 0) for n, end in enumerate(ends)))
    assert sight(0, marks).pace_s == 1.0
    assert Sight(0).pace_s is None


@pytest.mark.parametrize(
    ("marks", "limit_s"),
    [
        (reading(), 3 * 1.0 + LIMITS.extra_s),
        (reading(pace_s=100.0), 3 * 100.0 + LIMITS.extra_s),
        (reading(2), LIMITS.start_s),
        (reading(evaluating=True), LIMITS.evaluate_s),
        (reading(phase=Phase.SAVE), LIMITS.save_s),
        (reading(phase=Phase.LOAD), LIMITS.save_s),
        (reading(phase=Phase.COMPILE), LIMITS.compile_s),
        (reading(phase=Phase.JOIN), LIMITS.start_s),
        (reading(phase=Phase.SAVE, pace_s=100.0), 3 * 100.0 + LIMITS.extra_s),
    ],
)
def test_what_takes_long_may_take_long(marks: object, limit_s: float) -> None:
    assert Sight(0, marks=marks).limit_s(LIMITS) == pytest.approx(limit_s)  # type: ignore[arg-type]


def test_nothing_marked_is_the_start() -> None:
    assert Sight(0).limit_s(LIMITS) == LIMITS.start_s


def test_the_collective_it_is_in() -> None:
    assert sight(0, reading(5, inside=5)).inside == entry(5)
    assert sight(0, reading(5)).inside is None
    assert sight(0, reading(40, inside=2, entries=(entry(40),))).inside is None, "older than what is kept"


def test_a_sight_travels() -> None:
    there = sight(3, reading(4, inside=4, digests=((1, 2**63),)), 2.0, node=1, spot="a.py:1 in f")
    back = from_json(json.loads(json.dumps(to_json(there))), later_s=0.5)
    assert back.silent_s == 2.5
    assert back.marks == there.marks and back.spot == there.spot
    assert from_json(json.loads(json.dumps(to_json(Sight(1))))) == Sight(1)
