from lockstep.rules import same_buffers
from lockstep.trace.events import Event, Model
from lockstep.trace.trace import Trace
from tests.rules.state_runs import buffers, call, evaluated, model, run, trained, wrap


def rank(mean: str, *then: Event, via: str = "inner", ids: tuple[int, ...] = (0, 1), **wrapped: bool) -> list[Event]:
    first, then_forward = evaluated(via, ids)
    begin: list[Event] = [model(buffers=("1.running_mean", "1.count")), wrap(**wrapped), *trained(0)]
    return [*begin, first, buffers(mean), then_forward, *then]


def found(trace: Trace) -> list[str]:
    return [finding.seen for finding in same_buffers.dynamic(trace)]


def test_shares_evaluated_with_buffers_of_each_rank() -> None:
    (finding,) = same_buffers.dynamic(run(rank("aa", call(0), ids=(0, 1)), rank("bb", call(0), ids=(2, 3))))
    assert finding.seen == "after 1 step ranks evaluate with different buffers: 1 of 2 differ (1.running_mean)."
    assert ["aa" in finding.witnesses[0].text, "bb" in finding.witnesses[1].text] == [True, True]


def test_results_that_are_put_together() -> None:
    assert found(run(rank("aa", call(0)), rank("bb", call(0))))


def test_through_a_wrapper_that_does_not_broadcast() -> None:
    ranks = [rank(mean, call(0), via="wrapper", broadcast_buffers=False) for mean in ("aa", "bb")]
    assert found(run(*ranks))


def test_left_alone() -> None:
    assert not found(run(rank("aa", call(0)), rank("aa", call(0))))
    through = [rank(mean, call(0), via="wrapper") for mean in ("aa", "bb")]
    assert not found(run(*through)), "the wrapper broadcasts before it reads"
    assert not found(run(rank("aa", call(0, "barrier")), rank("bb"))), "each rank evaluates everything for itself"
    assert not found(run(rank("aa", *trained(1), call(0)), rank("bb", *trained(1), call(0)))), "reduced after training"
    assert not found(run(rank("aa", call(0)), trained(0))), "rank 0 evaluates alone"
    ends: list[list[Event]] = [[*trained(0), buffers(mean, "end"), call(0)] for mean in ("aa", "bb")]
    assert not found(run(*ends)), "at the end nobody reads them"


def test_models_that_are_counted_otherwise_are_not_compared() -> None:
    other = [model(kind="Average") if isinstance(event, Model) else event for event in rank("bb", call(0))]
    assert not found(run(rank("aa", call(0)), other))
