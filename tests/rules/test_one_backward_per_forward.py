from lockstep.rules.one_backward_per_forward import dynamic
from lockstep.trace.events import Raised
from tests.rules.gradient_runs import ALL, backward, forward, optimizer, run, step, wrap

SETUP = (wrap(), optimizer())
TWICE = "RuntimeError: Expected to mark a variable ready only once."


def test_two_backwards_after_one_forward() -> None:
    events = [*SETUP, forward(), backward(retain=True, line=41), backward(line=42)]
    findings = list(dynamic(run(lambda rank: [*events, step(0, rank, ALL)])))
    assert [one.code for one in findings] == ["LS104"]
    assert [str(one.place)[-2:] for one in findings[0].witnesses] == ["42", "41", "50", "50"]


def test_torch_refuses_the_second() -> None:
    error = Raised(through="backward", error=TWICE)
    (found,) = dynamic(run(lambda rank: [*SETUP, forward(), backward(retain=True), backward(), error], how="raised"))
    assert "torch refused the second in step 0" in found.seen


def test_right_ones() -> None:
    once = [forward(), forward(), backward()]
    each = [forward(), backward(), forward(), backward()]
    for events in (once, each):
        assert not list(dynamic(run(lambda rank, events=events: [*SETUP, *events, step(0)])))  # type: ignore[misc]


def test_another_cause_of_the_same_error_is_left_alone() -> None:
    error = Raised(through="backward", error=TWICE)
    assert not list(dynamic(run(lambda rank: [*SETUP, forward(), backward(), error], how="raised")))
