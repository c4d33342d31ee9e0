from lockstep.core.finding import Severity
from lockstep.rules.no_sync_effective import dynamic
from lockstep.trace.events import NoSync
from tests.rules.gradient_runs import backward, forward, inner, optimizer, run, step, wrap

SETUP = (wrap(), optimizer())
ENTER, EXIT = NoSync(model=0, what="enter", at="/home/me/train.py:39"), NoSync(model=0, what="exit")


def test_no_sync_around_backward_only() -> None:
    events = [*SETUP, forward(), ENTER, backward(), EXIT, forward(), ENTER, backward(), EXIT, step(0)]
    findings = list(dynamic(run(lambda rank: events)))
    assert [(one.code, one.severity) for one in findings] == [("LS117", Severity.NOTE)]
    assert findings[0].seen.startswith("2 backward passes")


def test_around_both() -> None:
    events = [*SETUP, ENTER, forward(sync=False), backward(), EXIT, forward(), backward(), step(0)]
    assert not list(dynamic(run(lambda rank: events)))


def test_left_alone() -> None:
    forward_under_another = [ENTER, forward(sync=False), EXIT, ENTER, backward(), EXIT]
    no_forward = [ENTER, backward(), EXIT]
    another_model = [inner(number=1), ENTER, backward(), EXIT]
    for events in (forward_under_another, no_forward, another_model):
        assert not list(dynamic(run(lambda rank, events=events: [*SETUP, *events, step(0)])))  # type: ignore[misc]
