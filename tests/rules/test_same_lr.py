from lockstep.core.finding import Place
from lockstep.rules import same_lr
from lockstep.trace.events import Schedule
from tests.rules.state_runs import run, step


def test_a_rank_with_a_stale_rate() -> None:
    schedule = Schedule(schedule=0, kind="StepLR", count=1, at="train.py:11")
    trace = run([step(0), schedule, step(1, lr=[0.05])], [step(0), step(1, lr=[0.1])])
    (finding,) = same_lr.dynamic(trace)
    assert finding.seen == "at step 1 the learning rate is 0.05 on rank 0, 0.1 on rank 1."
    assert finding.place == Place("train.py", 11)
    assert [side.rank for side in finding.witnesses] == [0, 0, 1]
    assert "after 1 step of its schedulers" in finding.witnesses[1].text


def test_settings_that_differ_from_the_start() -> None:
    (finding,) = same_lr.dynamic(run([step(0, lr=[0.1, 0.2])], [step(0, lr=[0.1, 0.3])]))
    assert "0.1 and 0.2 on rank 0, 0.1 and 0.3 on rank 1" in finding.seen
    assert finding.next_step == "give every rank the same learning rate and schedule"
    assert len(finding.witnesses) == 2


def test_once_for_each_optimizer() -> None:
    rates = [[step(0, lr=[rate]), step(1, lr=[rate]), step(0, of=1, lr=[rate])] for rate in (0.1, 0.2)]
    assert len(list(same_lr.dynamic(run(*rates)))) == 2


def test_left_alone() -> None:
    schedules = [[step(0), Schedule(schedule=0, kind="StepLR", count=1), step(1, lr=[0.05])] for _ in range(2)]
    assert not list(same_lr.dynamic(run(*schedules)))
    assert not list(same_lr.dynamic(run([step(0), step(1, lr=[0.05])], [step(0)]))), "one rank was cut"
