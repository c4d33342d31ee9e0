from lockstep.rules.distributed import dynamic
from tests.rules.gradient_runs import optimizer, run, step


def test_ranks_that_were_never_joined() -> None:
    findings = list(dynamic(run(lambda rank: [optimizer(wrapped=-1), step(0), step(1)], group=False)))
    assert [one.code for one in findings] == ["LS100"]
    assert "2 steps on rank 0 and 2 steps on rank 1" in findings[0].seen
    assert [one.rank for one in findings[0].witnesses] == [0, 1]


def test_ranks_that_were_joined() -> None:
    assert not list(dynamic(run(lambda rank: [optimizer(wrapped=-1), step(0)])))


def test_no_training_is_left_alone() -> None:
    assert not list(dynamic(run(lambda rank: [], group=False)))
    assert not list(dynamic(run(lambda rank: [] if rank else [step(0)], group=False)))
