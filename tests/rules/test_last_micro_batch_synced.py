import pytest

from lockstep.rules.last_micro_batch_synced import dynamic
from lockstep.trace.events import Event
from tests.rules.gradient_runs import ALL, backward, forward, optimizer, run, step, wrap

SETUP = (wrap(), optimizer())
LOCAL = [forward(sync=False), backward(flag=False)]


@pytest.mark.parametrize("events", [LOCAL, [forward(), backward(), *LOCAL], [*LOCAL, *LOCAL]])
def test_the_last_micro_batch_is_not_synced(events: list[Event]) -> None:
    findings = list(dynamic(run(lambda rank: [*SETUP, *events, step(0, rank, ALL)])))
    assert [one.code for one in findings] == ["LS103"]
    assert "the flag off" in findings[0].witnesses[1].text


def test_the_flag_comes_too_late() -> None:
    (found,) = dynamic(run(lambda rank: [*SETUP, forward(sync=False), backward(flag=True), step(0, rank, ALL)]))
    assert "only switched on after it" in found.seen


def test_the_last_micro_batch_is_synced() -> None:
    assert not list(dynamic(run(lambda rank: [*SETUP, *LOCAL, forward(), backward(), step(0)])))


def test_what_is_reduced_by_hand_is_left_alone() -> None:
    assert not list(dynamic(run(lambda rank: [*SETUP, *LOCAL, step(0)])))
