"""Whether two curves part as rounding makes them, or at one step."""

import pytest

from lockstep.proof.drift import Verdict, drift
from lockstep.proof.finished import Span

LOSSES = [2.0 * 0.9**step for step in range(20)]


def pairs(apart: list[float], span: int = 1) -> list[tuple[Span, float, float]]:
    return [
        ((step * span, (step + 1) * span), loss, loss * (1 + value))
        for step, (loss, value) in enumerate(zip(LOSSES, apart, strict=False))
    ]


def test_rounding_that_grows_slowly_is_the_same_training() -> None:
    result = drift(pairs([1e-7 * 1.6**step for step in range(20)]))
    assert result.verdict is Verdict.SAME
    assert "20 points to step 20: relative difference 1.0e-07 at the start" in result.said


def test_equal_curves() -> None:
    assert drift(pairs([0.0] * 20)).verdict is Verdict.SAME


def test_a_jump_is_found_at_its_step() -> None:
    result = drift(pairs([1e-7] * 5 + [2e-2] * 10))
    assert result.verdict is Verdict.PARTED
    assert result.differences[0].step == 5
    assert "the curves part at step 5: relative difference 2.0e-02, until then at most 1.0e-06" in result.said


def test_a_step_made_differently_early_and_a_little() -> None:
    assert drift(pairs([0.0, 2e-3, 4e-3])).verdict is Verdict.PARTED


def test_curves_that_drift_far_apart_with_no_jump_cannot_be_judged() -> None:
    result = drift(pairs([1e-7 * 3.0**step for step in range(15)]))
    assert result.verdict is Verdict.UNCLEAR
    assert "no jump" in result.said


def test_other_first_losses_cannot_be_judged() -> None:
    result = drift(pairs([0.05] + [0.01 * step for step in range(10)]))
    assert result.verdict is Verdict.UNCLEAR
    assert "the first losses differ by 4.8e-02" in result.said


def test_a_constant_factor_is_told() -> None:
    result = drift([(span, one, 3 * one) for span, one, _ in pairs([0.0] * 8)])
    assert result.verdict is Verdict.UNCLEAR
    assert "every loss is 3 times" in result.said


@pytest.mark.parametrize("right", [True, False])
def test_a_sum_over_a_ranks_samples_is_compared_without_its_factor(right: bool) -> None:
    apart = [0.0] * 8 if right else [0.0, 0.03, 0.05, 0.07]
    result = drift([(span, one, other / 2) for span, one, other in pairs(apart)], share=0.5)
    assert result.verdict is (Verdict.SAME if right else Verdict.PARTED)
    assert result.said.startswith("the first loss is 0.5 times the reference's, a sum over a rank's samples")


def test_a_jump_between_means_of_many_steps_is_not_certain() -> None:
    result = drift(pairs([1e-7, 1e-7, 5e-2, 5e-2], span=10))
    assert result.verdict is Verdict.UNCLEAR
    assert "a mean over 10 steps" in result.said


def test_sixteen_bits_are_allowed_more() -> None:
    apart = [1e-4, 5e-3, 1e-2, 1e-2]
    assert drift(pairs(apart), low=True).verdict is Verdict.SAME
    assert drift(pairs(apart)).verdict is not Verdict.SAME


def test_no_number() -> None:
    assert drift(pairs([0.0, float("nan")])).verdict is Verdict.UNCLEAR
