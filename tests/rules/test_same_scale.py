from lockstep.rules import same_scale
from lockstep.trace.events import Scaler
from tests.rules.state_runs import run


def test_scales_that_differ() -> None:
    ranks = [[Scaler(scale=scale), Scaler(scale=2 * scale)] for scale in (4.0, 8.0)]
    (finding,) = same_scale.dynamic(run(*ranks))
    assert finding.seen == "after update 0 the scale is 4 on rank 0, 8 on rank 1."
    assert [side.rank for side in finding.witnesses] == [0, 1]


def test_left_alone() -> None:
    assert not list(same_scale.dynamic(run([Scaler(scale=4.0), Scaler(scale=8.0)], [Scaler(scale=4.0)])))
    assert not list(same_scale.dynamic(run([], [])))
    ranks = [[Scaler(scale=8.0), Scaler(scale=4.0, skipped=True)], [Scaler(scale=8.0), Scaler(scale=8.0)]]
    assert not list(same_scale.dynamic(run(*ranks))), "an overflow on one rank is a matter of gradients"
