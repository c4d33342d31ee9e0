from lockstep.rules.evidence.noise import draws
from lockstep.trace.events import Batch, Event, Pass
from tests.rules.by_hand import trace
from tests.rules.data_runs import loader, state
from tests.rules.test_own_noise import run


def drawn(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(draw.source, draw.lib, draw.before) for draw in draws(trace(events).ranks[0])]


def batch(number: int, **fields: object) -> Batch:
    return Batch(loader=0, stream="s", number=0, batch=number, ids=(1,), **fields)  # type: ignore[arg-type]


def test_what_is_drawn_for() -> None:
    rank = run("a", samples=True, latent=True, model=True).ranks[0]
    assert [draw.source for draw in draws(rank)] == ["noise", "model", *["samples", "noise", "model"] * 2]


def test_the_first_batch_of_a_pass_may_draw_an_order() -> None:
    begin = [loader(), Pass(loader=0, stream="s", number=0)]
    assert drawn([*begin, state("fetch", "a"), batch(0), state("batch", "b")]) == []
    assert drawn([*begin, state("fetch", "a"), batch(1), state("batch", "b")]) == [("samples", "torch", "a")]


def test_a_pass_in_between_ends_a_comparison() -> None:
    begin = Pass(loader=0, stream="s", number=0)
    assert drawn([loader(), state("forward", "a"), begin, state("backward", "b")]) == []


def test_workers_are_told_once_a_pass() -> None:
    events = [loader(), batch(0, noise={"numpy": "a"}), batch(1, noise={"numpy": "a"})]
    assert drawn(events) == [("workers", "numpy", "a")]
    assert drawn([loader(), batch(0, noise={"numpy": "a"}, grad=False)]) == []


def test_states_that_were_not_looked_at() -> None:
    begin = [loader(), Pass(loader=0, stream="s", number=0)]
    assert drawn([*begin, state("fetch", "", "a"), batch(1), state("batch", "", "")]) == []
