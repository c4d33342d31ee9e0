from lockstep.core.finding import Severity
from lockstep.rules.evidence.reducer import Cause
from lockstep.rules.evidence.telling import first_of, told
from tests.rules.gradient_runs import ALL, backward, inner, optimizer, run, step, wrap


def test_which_gradients_in_how_many_steps() -> None:
    def rank(one: int) -> list[object]:
        events = [wrap(), optimizer()]
        for number in range(3):
            events += [inner(), backward(), step(number, one, ALL if number else (), missing=())]
        return events

    found = first_of(run(rank), Cause.BYPASSED)  # type: ignore[arg-type]
    assert found is not None
    words = "in 2 of 3 steps, first in step 1, the gradients of 4 of 4 parameters differ between ranks"
    assert found[1] == f"{words} (body.weight, body.bias, head.weight and 1 more)"
    assert first_of(run(rank), Cause.AGAIN) is None  # type: ignore[arg-type]


def test_both_sides_are_shown() -> None:
    def rank(one: int) -> list[object]:
        return [wrap(), optimizer(), inner(), backward(), step(0, one, (2,), missing=(0,) if one else ())]

    findings = list(told(run(rank), Cause.BYPASSED, "LS101", lambda _: ("lead", "must", "next", ())))  # type: ignore[arg-type]
    assert [one.severity for one in findings] == [Severity.ERROR]
    assert [one.rank for one in findings[0].witnesses] == [0, 1]
    assert [one.text for one in findings[0].witnesses] == [
        "steps with gradient 0:all of body.weight",
        "steps with no gradient of body.weight",
    ]
    assert findings[0].seen.startswith("lead: in 1 of 1 steps")
