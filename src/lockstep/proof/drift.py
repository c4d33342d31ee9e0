"""Whether two loss curves part as rounding makes them part, or at one step.

The same training on another number of ranks adds in another order. In float32 the curves begin equal to 1e-7 or so and
drift apart by 1e-5 to 1e-3 within twenty steps: each step's difference is a few times the largest one before it. A step
that is made differently shows at once, whatever was before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from lockstep.core.proof import Difference
from lockstep.proof.finished import Span

FLOOR, LOW_FLOOR = 1e-6, 2e-4
"""Relative difference of a first loss that rounding explains at most, is ten times this: of float32, of 16 bits."""
JUMP = 100.0
"""A difference so many times the largest before it, and larger than 1e-3 (0.02 with 16 bits), is no rounding."""
NEAR = 1e-2
"""Curves that stay this near to each other (0.03 with 16 bits) are the same."""


class Verdict(Enum):
    """SAME, PARTED at one step, or UNCLEAR."""

    SAME = 1
    PARTED = 2
    UNCLEAR = 3


@dataclass(frozen=True)
class Drift:
    """The verdict, the figures in words, and the first difference where they part."""

    verdict: Verdict
    said: str
    differences: tuple[Difference, ...] = ()


def drift(pairs: Sequence[tuple[Span, float, float]], low: bool = False, share: float = 1.0) -> Drift:
    """Judge two curves.

    Args:
        pairs: (span, loss of the reference, loss of the other), one after the other.
        low: numbers of 16 bits are in it.
        share: part of a step's samples that a rank of the other has, over that of the reference: a loss that is a sum
            over samples shows it, and is compared without it.
    """
    (_, one, other), *_ = pairs
    if share != 1.0 and one and abs(other / one / share - 1) <= (0.01 if low else 1e-4):
        result = _judged([(span, a, b / share) for span, a, b in pairs], low)
        text = (
            f"the first loss is {share:.4g} times the reference's, a sum over a rank's samples; without that factor: "
        )
        return replace(result, said=text + result.said)
    return _judged(pairs, low)


def _judged(pairs: Sequence[tuple[Span, float, float]], low: bool) -> Drift:
    floor, least, near = (LOW_FLOOR, 0.02, 0.03) if low else (FLOOR, 1e-3, NEAR)
    scale = max(abs(one) for _, one, _ in pairs) or 1.0
    apart = [abs(one - other) / max(abs(one), abs(other), 0.01 * scale) for _, one, other in pairs]
    if any(value != value for value in apart):
        return Drift(Verdict.UNCLEAR, "a loss is not a number")
    spans = [span for span, _, _ in pairs]
    whole = f"{len(pairs)} points to step {spans[-1][1]}"
    if apart[0] > 10 * floor:
        return Drift(Verdict.UNCLEAR, f"{_at_the_start(pairs, apart[0])} ({whole})")
    largest = max(apart)
    figures = f"relative difference {apart[0]:.1e} at the start, {largest:.1e} at most, {apart[-1]:.1e} at the end"
    most = floor
    for (span, one, other), value in zip(pairs, apart, strict=True):
        if value > JUMP * most and value > least:
            step = span[1] - 1
            said = f"the curves part at step {step}: relative difference {value:.1e}, until then at most {most:.1e}"
            if span[1] - span[0] > 1:
                said += f"; each point is a mean over {span[1] - span[0]} steps, in which rounding can grow as much"
                return Drift(Verdict.UNCLEAR, said)
            difference = Difference(step, "loss", "", None, f"{other:.9g}", f"{one:.9g}", value)
            return Drift(Verdict.PARTED, said, (difference,))
        most = max(most, value)
    if largest <= near:
        return Drift(Verdict.SAME, f"{whole}: {figures}")
    said = f"{whole}: {figures}. They drift apart with no jump, as rounding does; so far apart a curve shows no more"
    return Drift(Verdict.UNCLEAR, said)


def _at_the_start(pairs: Sequence[tuple[Span, float, float]], value: float) -> str:
    (_, one, other), *_ = pairs
    ratios = [b / a for _, a, b in pairs[:5] if a]
    if one and ratios and max(ratios) - min(ratios) < 1e-3 * abs(ratios[0]):
        return f"every loss is {ratios[0]:.6g} times the reference's: the same curve, or a sum and a mean"
    return (
        f"the first losses differ by {value:.1e} ({other:.6g} and {one:.6g}): other first weights, samples or random "
        "numbers (dropout); such curves cannot be compared point by point"
    )
