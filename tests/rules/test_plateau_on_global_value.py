from math import nan

from lockstep.rules import plateau_on_global_value
from lockstep.trace.events import Schedule
from lockstep.trace.trace import Trace
from tests.rules.state_runs import run


def plateau(*metrics: float | None) -> list[Schedule]:
    kind = "ReduceLROnPlateau"
    return [Schedule(schedule=0, kind=kind, metric=one, count=at + 1) for at, one in enumerate(metrics)]


def found(trace: Trace) -> list[str]:
    return [finding.seen for finding in plateau_on_global_value.dynamic(trace)]


def test_local_values() -> None:
    (said,) = found(run(plateau(0.5, 0.25), plateau(0.5, 0.75)))
    assert said == "ReduceLROnPlateau was given 0.25 on rank 0, 0.75 on rank 1 in its step 2."


def test_no_number_on_one_rank() -> None:
    assert found(run(plateau(nan), plateau(0.5)))


def test_left_alone() -> None:
    assert not found(run(plateau(0.5, 0.25), plateau(0.5)))
    assert not found(run(plateau(0.5), plateau(0.5 + 1e-7))), "added up in another order"
    assert not found(run(plateau(nan), plateau(nan)))
    assert not found(run(plateau(None), plateau(None))), "a scheduler that is given none"
