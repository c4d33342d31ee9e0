from dataclasses import replace

from lockstep.core.finding import Place, Severity
from lockstep.rules import wrapper_on_all_ranks
from lockstep.trace.events import Event, Forward
from lockstep.trace.trace import Trace
from tests.rules.state_runs import RETURNED, call, evaluated, model, run, trained, wrap


def begin(*buffers: str, broadcast: bool = True) -> list[Event]:
    return [model(buffers=buffers), wrap(broadcast_buffers=broadcast), *trained(0)]


def found(trace: Trace) -> list[Severity]:
    return [finding.severity for finding in wrapper_on_all_ranks.dynamic(trace)]


def test_one_rank_evaluates_through_the_wrapper() -> None:
    one = [*begin("mean"), *evaluated("wrapper"), *evaluated("wrapper"), *trained(1)]
    (finding,) = wrapper_on_all_ranks.dynamic(run(one, [*begin("mean"), *trained(1)]))
    assert finding.seen == (
        "after 1 step the wrapper evaluates on some ranks only: rank 0 2 times, rank 1 not; it broadcasts 1 buffer."
    )
    assert [(side.rank, side.step, side.place) for side in finding.witnesses] == [
        (0, 1, Place("train.py", 12)),
        (1, 1, Place("train.py", 7)),
    ]


def test_the_other_rank_waits_in_a_barrier() -> None:
    one, other = [*begin("mean"), *evaluated("wrapper")], [*begin("mean"), call(0, "barrier", done=False)]
    assert found(run(one, other, cut="hang")) == [Severity.ERROR]


def test_the_other_rank_has_ended() -> None:
    assert found(run([*begin("mean"), *evaluated("wrapper")], [*begin("mean"), RETURNED])) == [Severity.ERROR]


def test_without_buffers_it_is_a_note() -> None:
    for start in (begin(), begin("mean", broadcast=False)):
        assert found(run([*start, *evaluated("wrapper")], [*start, RETURNED])) == [Severity.NOTE]


def test_left_alone() -> None:
    start = begin("mean")
    everyone = [*start, *evaluated("wrapper"), *trained(1), RETURNED]
    assert not found(run(everyone, everyone))
    inner = [*start, *evaluated("inner"), *trained(1)]
    assert not found(run(inner, [*start, *trained(1)])), "the inner module sends nothing"
    uneven = [*start, *evaluated("wrapper"), *evaluated("wrapper"), RETURNED]
    assert not found(run(everyone, uneven)), "one more batch without gradients sends nothing"
    assert not found(run([*start, *evaluated("wrapper")], start)), "the other rank was cut before"


def test_calls_of_parts_of_the_ranks_are_no_moments() -> None:
    start = begin("mean")
    other = [*start, call(0, group=1, ranks=(1,))]
    assert not found(run([*start, *evaluated("wrapper")], other))


def test_a_rank_with_a_model_more_counts_otherwise() -> None:
    one = [*begin("mean"), *evaluated("wrapper"), *trained(1), RETURNED]
    other: list[Event] = [model(0, kind="Average"), model(1, buffers=("mean",)), wrap(1), *trained(0)]
    later = [replace(event, model=1) for event in evaluated("wrapper") if isinstance(event, Forward)]
    assert not found(run(one, [*other, *later, *trained(1), RETURNED]))
