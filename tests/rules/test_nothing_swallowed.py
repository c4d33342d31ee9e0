from lockstep.core.finding import Place
from lockstep.rules import nothing_swallowed
from lockstep.trace.events import Raised
from lockstep.trace.trace import Trace
from tests.rules.state_runs import CRASHED, RETURNED, batch, call, run, trained


def raised(through: str = "forward", at: str = "train.py:7") -> Raised:
    return Raised(through=through, error="ValueError: a bad batch\nand more", at=at)


def found(trace: Trace) -> list[str]:
    return [finding.seen for finding in nothing_swallowed.dynamic(trace)]


def test_a_rank_that_goes_on() -> None:
    trace = run(trained(0) + trained(1), [*trained(0), batch(1), raised(), *trained(2)])
    (finding,) = nothing_swallowed.dynamic(trace)
    assert finding.seen == (
        "after 1 step rank 1 caught an error of its forward and went on training: ValueError: a bad batch."
    )
    assert [(side.rank, side.step, side.place) for side in finding.witnesses] == [
        (1, 1, Place("train.py", 7)),
        (1, 1, Place("train.py", 6)),
    ]


def test_a_rank_that_ends_as_if_all_was_well() -> None:
    (said,) = found(run(trained(0), [raised("batch"), RETURNED]))
    assert "ended without an error" in said


def test_other_ranks_must_have_caught_the_same() -> None:
    assert found(run([raised(), *trained(0)], [*trained(0), raised(), *trained(1)]))


def test_the_earliest_step_is_named_and_not_the_lowest_rank() -> None:
    cut_off = [*trained(0), *trained(1), batch(2), raised("backward"), RETURNED]
    (said,) = found(run(cut_off, [*trained(0), batch(1), raised(), *trained(2)]))
    assert said.startswith("after 1 step rank 1 caught an error of its forward")


def test_left_alone() -> None:
    assert not found(run(trained(0), trained(0)))
    assert not found(run(trained(0), [*trained(0), raised(), CRASHED])), "not caught"
    assert not found(run(trained(0), [*trained(0), raised(), call(0)])), "cleaning up after it"
    both = [raised(), *trained(0)]
    assert not found(run(both, both)), "all ranks skip the step together"
    for through in ("load", "collective"):
        assert not found(run(trained(0), [raised(through), *trained(0)]))
