from collections.abc import Iterable

from lockstep.rules.evidence.averaging import parameters_averaged
from lockstep.trace.events import Event
from tests.rules.gradient_runs import ALL, KEYS, NUMEL, backward, forward, optimizer, reduced, run, step


def averaged(between: list[Event], before: str = "") -> bool:
    def rank(one: int) -> Iterable[Event]:
        told = before.format(rank=one)
        for number in range(3):
            yield from (forward(via="plain"), backward(), step(number, one, ALL, before=told), *between)

    return parameters_averaged(run(rank), optimizer(wrapped=-1), KEYS)


def test_collectives_after_the_step_average() -> None:
    assert averaged([reduced(numel) for numel in NUMEL])
    assert averaged([reduced(sum(NUMEL))])
    assert averaged([reduced(sum(NUMEL))], before="equal again")


def test_a_reduction_that_leaves_them_apart_does_not() -> None:
    assert not averaged([reduced(numel) for numel in NUMEL], before="of {rank}")


def test_small_ones_and_broadcasts_do_not() -> None:
    assert not averaged([reduced(1)])
    assert not averaged([reduced(sum(NUMEL), op="broadcast")])
    assert not averaged([])


def test_collectives_before_the_step_are_of_gradients() -> None:
    events = lambda one: [forward(via="plain"), backward(), reduced(sum(NUMEL)), step(0, one, ALL)] * 2  # noqa: E731
    assert not parameters_averaged(run(events), optimizer(wrapped=-1), KEYS)
