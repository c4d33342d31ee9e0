from lockstep.rules.through_wrapper import dynamic
from tests.rules.gradient_runs import ALL, backward, forward, inner, optimizer, run, step, wrap

SETUP = (wrap(), optimizer())


def test_the_inner_model_is_called() -> None:
    findings = list(dynamic(run(lambda rank: [*SETUP, inner(), backward(), step(0, rank, ALL)])))
    assert [one.code for one in findings] == ["LS101"]
    assert str(findings[0].place) == "/home/me/train.py:30"
    assert [one.text for one in findings[0].witnesses[:3]] == [
        "calls the inner model here",
        "this backward is not averaged",
        "the wrapper was built here",
    ]


def test_the_wrapper_is_called() -> None:
    assert not list(dynamic(run(lambda rank: [*SETUP, forward(), backward(), step(0)])))


def test_left_alone() -> None:
    evaluates = [*SETUP, forward(), backward(), step(0), inner(grad=False)]
    assert not list(dynamic(run(lambda rank: evaluates if rank == 0 else evaluates[:-1])))
    by_hand = run(lambda rank: [*SETUP, inner(), backward(), step(0)])
    assert not list(dynamic(by_hand))
