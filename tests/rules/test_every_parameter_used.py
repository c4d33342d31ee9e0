from lockstep.rules.every_parameter_used import dynamic
from lockstep.trace.events import Raised
from tests.rules.gradient_runs import backward, forward, optimizer, run, step, wrap

SETUP = (wrap(), optimizer())
STEP = (forward(), backward())
ERROR = Raised(through="forward", error="RuntimeError: Expected to have finished reduction in the prior iteration")


def test_a_parameter_without_a_gradient() -> None:
    findings = list(dynamic(run(lambda rank: [*SETUP, *STEP, step(0, rank, (0, 1), missing=(2, 3)), forward(), ERROR])))
    assert [one.code for one in findings] == ["LS105"]
    texts = [one.text for one in findings[0].witnesses]
    assert texts[0] == "no gradient for head.weight, head.bias"
    assert any(text.startswith("raised: RuntimeError") for text in texts)
    assert "wrapped here without find_unused_parameters" in texts


def test_on_one_rank_only() -> None:
    events = lambda rank: step(0, rank, (0, 1), missing=(2,) if rank else ())  # noqa: E731
    (found,) = dynamic(run(lambda rank: [*SETUP, *STEP, events(rank)]))
    assert [one.rank for one in found.witnesses if one.text.startswith("no gradient for")] == [1]


def test_the_complaint_alone() -> None:
    (found,) = dynamic(run(lambda rank: [*SETUP, *STEP, step(0), forward(), ERROR], how="raised"))
    assert found.seen.startswith("the forward of step")


def test_told_to_the_wrapper() -> None:
    told = [wrap(find_unused=True), optimizer()]
    assert not list(dynamic(run(lambda rank: [*told, *STEP, step(0, missing=(2, 3))])))


def test_left_alone() -> None:
    frozen = optimizer(trainable=(True, True, False, False), frozen_at_wrap=(False, False, True, True))
    assert not list(dynamic(run(lambda rank: [wrap(), frozen, *STEP, step(0, missing=(2, 3))])))
    replaced = optimizer(names=("body.weight", "body.bias", "", ""))
    after = run(lambda rank: [wrap(), replaced, *STEP, step(0), forward(), ERROR], how="raised")
    assert not list(dynamic(after))
