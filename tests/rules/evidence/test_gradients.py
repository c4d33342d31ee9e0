from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from lockstep.rules.evidence.gradients import complaints, has_group, unequal_gradients
from lockstep.rules.evidence.reducer import Cause
from lockstep.trace.events import Event, GradCall, Raised
from lockstep.trace.trace import Trace
from tests.rules.gradient_runs import (
    ALL,
    NAMES,
    backward,
    forward,
    inner,
    optimizer,
    reduced,
    run,
    step,
    wrap,
)


def causes(trace: Trace) -> list[tuple[Cause, tuple[str, ...]]]:
    return [(one.cause, one.keys) for one in unequal_gradients(trace)]


def trained(events: Sequence[Event], setup: Sequence[Event] = (wrap(), optimizer()), own: Sequence[int] = ALL) -> Trace:
    return run(lambda rank: [*setup, *events, step(0, rank, own)])


def test_equal_gradients_are_never_spoken_of() -> None:
    for events in ([forward(), backward()], [inner(), backward()], [backward(True), backward()], []):
        assert causes(trained(events, own=())) == []


def test_without_a_group_nothing_is_compared() -> None:
    trace = run(lambda rank: [wrap(), optimizer(), inner(), backward(), step(0, rank, ALL)], group=False)
    assert not has_group(trace)
    assert causes(trace) == []


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([inner(), backward()], Cause.BYPASSED),
        ([forward(sync=False), backward()], Cause.NOT_SYNCED),
        ([forward(), backward(True), backward()], Cause.AGAIN),
        ([forward(), GradCall(model=0, names=NAMES)], Cause.LOCAL_CALL),
        ([forward(), backward()], Cause.UNKNOWN),
    ],
)
def test_causes_in_the_reducer(events: list[Event], cause: Cause) -> None:
    found = causes(trained(events))
    assert [one for one, _ in found] == [cause]


def test_nothing_reduces() -> None:
    assert causes(trained([inner(), backward()], [optimizer(wrapped=-1)]))[0][0] is Cause.UNREDUCED
    assert causes(trained([forward(), backward()], [wrap(group_size=1), optimizer()]))[0][0] is Cause.UNREDUCED


def test_each_parameter_has_its_own_cause() -> None:
    names = ("0:body.weight", "0:body.bias", "3:scale", "0:added")
    setup = [wrap(), replace(optimizer(), names=names, wrapped=(0, 0, -1, -1))]
    found = causes(trained([forward(), backward()], setup, own=(2, 3)))
    assert found == [(Cause.UNWRAPPED, ("0/2",)), (Cause.CHANGED, ("0/3",))]


def test_a_replaced_parameter_leaves_the_others_behind() -> None:
    setup = [wrap(), optimizer(names=("body.weight", "body.bias", "", "head.bias"))]
    found = causes(trained([forward(), backward()], setup, own=(0, 1)))
    assert found == [(Cause.CHANGED, ("0/0", "0/1"))]


def test_a_missing_gradient_leaves_the_others_behind() -> None:
    events = [wrap(), optimizer(), forward(), backward()]
    trace = run(lambda rank: [*events, step(0, rank, (0, 1), missing=(2,))])
    assert [one for one, _ in causes(trace)] == [Cause.UNUSED]
    told = [wrap(find_unused=True), *events[1:]]
    assert [one for one, _ in causes(run(lambda rank: [*told, step(0, rank, (0, 1), missing=(2,))]))] == [Cause.UNKNOWN]


def test_a_complaint_explains_too() -> None:
    error = Raised(through="forward", error="RuntimeError: Expected to have finished reduction in the prior iteration")
    trace = run(lambda rank: [wrap(), optimizer(), forward(), backward(), step(0, rank, (0,)), forward(), error])
    assert [one for one, _ in causes(trace)] == [Cause.UNUSED]
    assert len(list(complaints(trace))) == 2


def test_the_rank_on_which_it_shows() -> None:
    def rank(one: int) -> Iterable[Event]:
        extra = [inner(), backward()] if one else []
        return [wrap(), optimizer(), forward(), backward(), *extra, step(0, one, ALL)]

    assert [one.witness.rank for one in unequal_gradients(run(rank))] == [1]


def test_left_alone() -> None:
    local = [inner(), backward()]
    sharded = [optimizer(wrapped=-1, sharded=(True,) * 4)]
    assert causes(trained(local, sharded)) == []
    subgroups = run(lambda rank: [wrap(group_size=2), optimizer(), *local, step(0, rank, ALL)], num_ranks=4)
    assert causes(subgroups) == []
    stages = run(lambda rank: [optimizer(model=0, names=(f"stage{rank}",), wrapped=-1), step(0, rank, (0,), count=1)])
    assert causes(stages) == []
    averaged = run(lambda rank: [optimizer(wrapped=-1), inner(), step(0, rank, ALL), reduced(26), inner()])
    assert causes(averaged) == []


def test_only_steps_that_all_ranks_made_with_digests() -> None:
    def rank(one: int) -> Iterable[Event]:
        yield from (wrap(), optimizer(), forward(), backward(), step(0, one))
        if one:
            yield from (inner(), backward(), step(1, one, ALL))

    assert causes(run(rank)) == []
    bare = step(0)
    object.__setattr__(bare, "after", {})
    assert causes(run(lambda one: [optimizer(wrapped=-1), bare if one else step(0, one, ALL)])) == []
