from lockstep.core.finding import Severity
from lockstep.rules import synchronised_batch_norm
from lockstep.trace.events import Event
from lockstep.trace.trace import Trace
from tests.rules.state_runs import buffers, evaluated, model, run, trained, wrap


def rank(*then: Event, norms: tuple[str, ...] = ("1",), synced: tuple[str, ...] = ()) -> list[Event]:
    return [model(batch_norms=norms, sync_batch_norms=synced), wrap(), *trained(0), *then]


def found(trace: Trace) -> list[str]:
    return [finding.seen for finding in synchronised_batch_norm.dynamic(trace)]


def test_layers_over_a_share_of_the_batch() -> None:
    (finding,) = synchronised_batch_norm.dynamic(run(rank(), rank()))
    assert finding.severity is Severity.DEVIATION
    assert finding.seen == "1 BatchNorm layer of Net (1): in training 2 of 4 samples on each rank."
    assert finding.witnesses[0].text == "trains with 2 samples a forward"


def test_statistics_that_part_show_that_the_layers_are_in_use() -> None:
    assert found(run(rank(buffers("aa", "end")), rank(buffers("bb", "end"))))


def test_layers_without_running_statistics_are_in_use() -> None:
    assert found(run(rank(buffers("aa", "end"), norms=("5",)), rank(buffers("aa", "end"), norms=("5",))))


def test_left_alone() -> None:
    assert not found(run(rank(norms=()), rank(norms=())))
    assert not found(run(rank(norms=(), synced=("1",)), rank(norms=(), synced=("1",))))
    frozen = rank(buffers("aa"), buffers("aa", "end"))
    assert not found(run(frozen, frozen)), "layers in evaluation mode"
    only: list[Event] = [model(batch_norms=("1",)), *evaluated("plain")]
    assert not found(run(only, only)), "a model that is not trained"
