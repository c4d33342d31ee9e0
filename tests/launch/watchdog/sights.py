"""Sights made by hand."""

from dataclasses import replace
from typing import Any

from lockstep.launch.watchdog.sight import Sight
from lockstep.trace.progress import Entry, Phase, Reading

SECOND = 10**9


def entry(number: int, op: str = "gradients", about: str = "", place: str = "a/train.py:9", step: int = 0) -> Entry:
    return Entry(number, op, about, place, step or number - 1, 0)


def reading(count: int = 5, inside: int = 0, pace_s: float = 1.0, last: Entry | None = None, **more: Any) -> Reading:
    """A rank that has called `count` times what every step calls; `last` takes the place of the newest call."""
    entries = [entry(number) for number in range(1, count + 1)]
    if last is not None:
        entries[-1] = last
    steps = tuple((n, int(n * pace_s * SECOND), int(n * pace_s * SECOND)) for n in range(1, count + 1))
    plain = Reading(
        beats=9,
        beat_ns=0,
        phase=Phase.BACKWARD if inside else Phase.SCRIPT,
        phase_ns=0,
        evaluating=False,
        step=count,
        batches=count,
        data_ns=0,
        count=count,
        inside=inside,
        comparable=True,
        queued=False,
        steps=steps,
        entries=tuple(entries),
        now="",
        digests=(),
    )
    return replace(plain, **more)


def sight(rank: int, marks: Reading | None = None, silent_s: float = 0.0, **more: Any) -> Sight:
    return Sight(rank, marks=reading() if marks is None else marks, silent_s=silent_s, **more)


def waiting(rank: int, silent_s: float = 9.0, **more: Any) -> Sight:
    """In the gradients of the step that the others have not begun."""
    return sight(rank, reading(6, inside=6, **more), silent_s)
