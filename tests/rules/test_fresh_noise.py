from collections.abc import Sequence

from lockstep.core.finding import Place, Severity
from lockstep.rules import fresh_noise
from lockstep.trace.events import Batch, Event, Seed
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import FIRST, HERE, THIRD, loader, reading, state, stepped


def passes(names: Sequence[str], *, drawn: bool = True, seeded: bool = True) -> Trace:
    """Two passes or more; in each the forward of each step draws from the state that its pass is named for."""
    events: list[Event] = [loader()]
    for number, name in enumerate(names):
        if seeded:
            events.append(Seed(lib="torch", value=7, at=f"{HERE}:25"))
        for count, event in enumerate(reading(loader(), (FIRST, THIRD)[number % 2], number)):
            kind = type(event).__name__
            if kind == "Forward":
                events.append(state("forward", f"{name}{count}"))
            if kind == "Backward":
                events.append(state("backward", f"{name}{count}" if drawn else f"{name}{count - 1}"))
            events.append(event)
    return trace(stepped(events))


def test_every_pass_draws_the_same() -> None:
    (finding,) = fresh_noise.dynamic(passes("aa"))
    assert (finding.code, finding.severity) == ("LS211", Severity.ERROR)
    assert "in all 2 passes over Points/16/16#0 rank 0 draws the same random numbers from torch" in finding.seen
    assert finding.place == Place(HERE, 25)
    assert finding.witnesses[0].text == "torch is seeded with 7"


def test_the_same_in_the_workers() -> None:
    events: list[Event] = [loader(workers=2)]
    for number in (0, 1):
        events += reading(loader(workers=2), FIRST, number)
    noisy = [
        type(event)(**{**vars(event), "noise": {"numpy": "a"}}) if isinstance(event, Batch) else event
        for event in stepped(events)
    ]
    (finding,) = fresh_noise.dynamic(trace(noisy))
    assert "from numpy" in finding.seen


def test_left_alone() -> None:
    assert not list(fresh_noise.dynamic(passes("ab")))
    assert not list(fresh_noise.dynamic(passes("aba"))), "seeds may turn in a circle"
    assert not list(fresh_noise.dynamic(passes("aa", drawn=False))), "nothing is drawn"
    assert not list(fresh_noise.dynamic(passes("a")))
