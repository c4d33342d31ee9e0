from dataclasses import replace

from lockstep.rules.all_trained_wrapped import dynamic
from tests.rules.gradient_runs import backward, forward, optimizer, run, step, wrap

NAMES = ("0:body.weight", "0:body.bias", "0:head.weight", "1:scale")
MIXED = replace(optimizer(), names=NAMES, wrapped=(0, 0, 0, -1))
FREE = replace(optimizer(), names=(*NAMES[:3], ""), wrapped=(0, 0, 0, -1))


def test_a_criterion_that_nobody_wrapped() -> None:
    findings = list(dynamic(run(lambda rank: [wrap(), MIXED, forward(), backward(), step(0, rank, (3,))])))
    assert [one.code for one in findings] == ["LS107"]
    assert "(scale)" in findings[0].seen


def test_a_free_parameter() -> None:
    (found,) = dynamic(run(lambda rank: [wrap(), FREE, forward(), backward(), step(0, rank, (3,))]))
    assert "1 of 4 parameters" in found.seen


def test_reduced_by_hand() -> None:
    assert not list(dynamic(run(lambda rank: [wrap(), MIXED, forward(), backward(), step(0)])))


def test_without_any_wrapper_it_is_left_alone() -> None:
    plain = optimizer(wrapped=-1)
    assert not list(dynamic(run(lambda rank: [plain, forward(via="plain"), backward(), step(0, rank, (3,))])))
