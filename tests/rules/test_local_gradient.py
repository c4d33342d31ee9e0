from lockstep.rules.local_gradient import dynamic
from lockstep.trace.events import GradCall
from tests.rules.gradient_runs import ALL, NAMES, backward, forward, inner, optimizer, run, step, wrap

SETUP = (wrap(), optimizer())
CALL = GradCall(model=0, names=NAMES, at="/home/me/train.py:41")


def test_gradients_from_autograd_grad() -> None:
    findings = list(dynamic(run(lambda rank: [*SETUP, forward(), CALL, step(0, rank, ALL)])))
    assert [one.code for one in findings] == ["LS108"]
    assert str(findings[0].place) == "/home/me/train.py:41"


def test_added_to_those_of_backward() -> None:
    events = [*SETUP, forward(), backward(), forward(), CALL]
    assert list(dynamic(run(lambda rank: [*events, step(0, rank, ALL)])))


def test_reduced_by_hand_or_only_looked_at() -> None:
    assert not list(dynamic(run(lambda rank: [*SETUP, forward(), CALL, step(0)])))
    assert not list(dynamic(run(lambda rank: [*SETUP, forward(), CALL, backward(), step(0)])))


def test_another_cause_is_left_alone() -> None:
    assert not list(dynamic(run(lambda rank: [*SETUP, CALL, inner(), backward(), step(0, rank, ALL)])))
    other = GradCall(model=1, names=NAMES)
    assert not list(dynamic(run(lambda rank: [*SETUP, forward(), other, step(0, rank, ALL)])))
