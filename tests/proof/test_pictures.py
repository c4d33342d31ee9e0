from dataclasses import replace
from math import isnan
from pathlib import Path

from lockstep.core.finding import Finding, Severity, Witness
from lockstep.core.proof import Difference, Rung, Status
from lockstep.proof.pictures import curves, timeline
from lockstep.trace.events import Backward, Batch, Collective, End, Event, File, Forward, Step
from tests.proof.by_hand import HERE, Made, take
from tests.rules.by_hand import trace


def losses(*values: float | None) -> list[Made]:
    return [Made(grads={"0/0": [1.0]}, loss=value) for value in values]


def test_curves_of_slices_come_before_those_of_the_mirror(tmp_path: Path) -> None:
    made = {
        "reference": take(tmp_path / "a", losses(4.0, 3.0)),
        "mirror": take(tmp_path / "b", losses(4.0, 3.0), losses(4.0, 3.0)),
    }
    one, other = curves(made)
    assert (one.label, other.label, other.values) == ("one process", "2 ranks (mirror)", (4.0, 3.0))
    made["reference in float64"] = take(tmp_path / "c", losses(2.0, 1.0))
    made["shard"] = take(tmp_path / "d", losses(1.0, 0.5), losses(3.0, 1.5))
    one, other = curves(made)
    assert (one.values, other.label, other.values) == ((2.0, 1.0), "2 ranks (shard)", (2.0, 1.0))


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert curves({}) == ()
    assert curves({"reference": take(tmp_path / "a", losses(1.0))}) == ()
    empty = take(tmp_path / "b")
    assert curves({"reference": take(tmp_path / "c", losses(1.0)), "mirror": empty}) == ()


def test_a_step_without_a_loss_is_a_gap(tmp_path: Path) -> None:
    made = {"reference": take(tmp_path / "a", losses(1.0, None)), "mirror": take(tmp_path / "b", losses(1.0, None))}
    assert isnan(curves(made)[0].values[1])


def test_micro_batches_are_averaged_and_a_second_optimizer_is_left_out(tmp_path: Path) -> None:
    steps = [
        replace(losses(2.0)[0], more=(Backward(loss=4.0),)),
        Made(grads={"0/0": [1.0]}, loss=9.0, optimizer=1),
    ]
    made = {"reference": take(tmp_path / "a", steps), "mirror": take(tmp_path / "b", steps)}
    assert curves(made)[0].values == (3.0,)


def at(step: int, time: float, event: Event) -> Event:
    return replace(event, step=step, time=time, at=f"{HERE}:{step + 1}")


def rank() -> list[Event]:
    events: list[Event] = []
    for step in range(6):
        begin = 100.0 + step
        events += [
            at(step, begin, Batch(loader=0, stream="Data", number=0, batch=step)),
            at(step, begin + 0.1, Forward(model=0, via="wrapper")),
            at(step, begin + 0.2, Backward(loss=0.5)),
            at(step, begin + 0.3, Collective(number=step, op="all_reduce", shape=(2,), end=begin + 0.35)),
            at(step, begin + 0.4, Step(optimizer=0, number=step)),
            at(step, begin + 0.5, File(op="save", path="a.pt")),
            at(step, begin + 0.6, File(op="read", path="b.txt")),
        ]
    return events


def test_the_timeline_is_around_the_first_difference() -> None:
    broken = Rung("mirror", Status.FAIL, "", (Difference(4, "gradient"),))
    moments = timeline(trace(rank(), rank()), [broken])
    assert {one.step for one in moments} == {3, 4, 5}
    assert {one.rank for one in moments} == {0, 1}
    assert moments[0].start == 0.0
    assert [one.kind for one in moments[:6]] == ["batch", "forward", "backward", "collective", "step", "save"]
    assert [one.text for one in moments[:6]] == [
        "batch",
        "forward (wrapper)",
        "backward, loss 0.5",
        "all_reduce [2]",
        "step",
        "save a.pt",
    ]
    assert all(one.end >= one.start for one in moments)
    assert round(moments[3].end - moments[3].start, 6) == 0.05
    assert str(moments[0].place) == f"{HERE}:4"


def test_the_timeline_is_around_the_first_finding_with_a_step_else_the_beginning() -> None:
    finding = Finding("LS102", Severity.ERROR, "", "", "", (Witness("all"), Witness("rank 1", 1, 3)))
    rungs = [Rung("2 processes", Status.FAIL, "", findings=(finding,))]
    assert {one.step for one in timeline(trace(rank()), rungs)} == {2, 3, 4}
    assert {one.step for one in timeline(trace(rank()), [])} == {0, 1}


def test_a_timeline_of_nothing() -> None:
    assert timeline(trace([]), []) == ()
    assert timeline(trace([End(how="returned")]), [Rung("mirror", Status.FAIL, "", (Difference(9, "lr"),))]) == ()


def test_a_long_timeline_is_cut() -> None:
    many: list[Event] = [at(0, float(count), Forward(model=0, via="inner")) for count in range(500)]
    moments = timeline(trace(many, many), [])
    assert [one.rank for one in moments] == [0] * 100 + [1] * 100
