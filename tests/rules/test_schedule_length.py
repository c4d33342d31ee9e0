"""LS405: a schedule that is N times too long or too short."""

import pytest

from lockstep.rules import schedule_length
from lockstep.trace.events import Event, Pass, Schedule
from tests.rules.by_hand import HERE, steps, trace


def run(
    total: int | None, batches: int = 10, epochs: int = 2, per_epoch: bool = False, kind: str = "OneCycleLR"
) -> list[Event]:
    events: list[Event] = []
    count = 0
    for number in range(epochs):
        events.append(Pass(loader=0, stream="Train", number=number))
        for batch in range(batches):
            events += steps()
            if not per_epoch or batch == batches - 1:
                count += 1
                events.append(Schedule(schedule=0, kind=kind, total=total, count=count, at=f"{HERE}:50"))
    return events


def test_of_the_whole_dataset() -> None:
    (finding,) = schedule_length.dynamic(trace(run(40), run(40)))
    assert "OneCycleLR was built for 40 steps, and rank 0 made 20: it is 2 times too long" in finding.seen


def test_divided_twice() -> None:
    (finding,) = schedule_length.dynamic(trace(run(10), run(10)))
    assert "2 times too short" in finding.seen


def test_rounded_up_to_whole_batches() -> None:
    assert list(schedule_length.dynamic(trace(run(38), run(38))))


@pytest.mark.parametrize(
    ("events", "more"),
    [
        pytest.param(run(20), {}, id="right"),
        pytest.param(run(30), {}, id="ended early"),
        pytest.param(run(None), {}, id="no length"),
        pytest.param(run(12, epochs=6, per_epoch=True), {}, id="by the epoch, ended early"),
        pytest.param(run(40), {"how": "enough"}, id="stopped by us"),
        pytest.param(run(40), {"how": "raised"}, id="it failed"),
        pytest.param(run(40), {"cut": "time"}, id="it was cut"),
    ],
)
def test_left_alone(events: list[Event], more: dict[str, str]) -> None:
    assert not list(schedule_length.dynamic(trace(events, events, **more)))
