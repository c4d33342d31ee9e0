"""What all ranks found, in plain words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lockstep.runtime.triage.finding import Finding, Outcome
from lockstep.runtime.triage.remedy import Remedy

LARGE = 1e4
"""From here on a value is called large: a few operations further fp16 has no number for it (its largest is 65504)."""


@dataclass(frozen=True)
class Past:
    """One of the last steps, over all ranks.

    Attributes:
        step: its number.
        loss: mean over all ranks.
        scale: loss scale; 1 where there is no scaler.
    """

    step: int
    loss: float
    scale: float


def block(outcomes: Sequence[Outcome], remedy: Remedy, past: Sequence[Past]) -> list[str]:
    """The lines that say where the first value came from that is not finite.

    Args:
        outcomes: of every rank.
        remedy: what was tried.
        past: the last steps, oldest first.
    """
    lines = [*_weights(outcomes), *_places(outcomes), *_batches(outcomes)]
    for error in sorted({outcome.error for outcome in outcomes if outcome.error}):
        ranks = [rank for rank, outcome in enumerate(outcomes) if outcome.error == error]
        lines.append(f"{_ranks(ranks)}: the step could not be run again to look ({error})")
    if not lines:
        lines.append(_nothing(outcomes))
    lines += _history(past)
    if remedy.scale_only:
        lines.append("tried: with a loss scale of 1 the step is finite: the scale has yet to come down")
    if remedy.modules:
        outcome = "the step is finite" if remedy.helps else "the step is not finite either"
        lines.append(f"tried: with {', '.join(remedy.modules)} in float32 {outcome}")
    return lines


def advice(outcomes: Sequence[Outcome], remedy: Remedy) -> str:
    """What to do next, in the order of what is likeliest."""
    usual = "look at these samples; lower optim.lr, or set optim.clip_norm"
    if remedy.helps:
        return f"precision.fp32_modules=[{','.join(remedy.modules)}]"
    if remedy.scale_only:
        return "nothing, if it stops soon: each such step halves the loss scale; else precision=bf16 or fp32"
    if any(outcome.weights for outcome in outcomes):
        return "go back to a checkpoint from before the weights were lost; lower optim.lr, or set optim.clip_norm"
    findings = [outcome.finding for outcome in outcomes if outcome.finding]
    if any(outcome.batch_holds for outcome in outcomes) and not findings:
        return "mend these samples, or leave them out; `lockstep scan` finds all of them"
    if findings and any(found.largest > LARGE for found in findings):
        return "the numbers are large: lower optim.lr, set optim.clip_norm, or warm up longer"
    return usual


def _places(outcomes: Sequence[Outcome]) -> list[str]:
    by_place: dict[Finding, list[tuple[int, Finding]]] = {}
    for rank, outcome in enumerate(outcomes):
        if (found := outcome.finding) is not None:
            by_place.setdefault(replace(found, value="", largest=0.0), []).append((rank, found))
    lines = []
    for place, ranks in by_place.items():
        micro = {outcomes[rank].micro for rank, _ in ranks}
        within = f", micro-batch {micro.pop()}" if len(micro) == 1 and any(o.micro for o in outcomes) else ""
        values = "/".join(sorted({found.value for _, found in ranks}))
        worst = replace(place, value=values, largest=max(found.largest for _, found in ranks))
        lines.append(f"{_ranks([rank for rank, _ in ranks])}{within}: {_sentence(worst)}")
        lines += [f"  at {place.line}"] * bool(place.line)
    return lines


def _sentence(found: Finding) -> str:
    what = f"`{found.operation}`" if found.operation else "an operation"
    if found.module is None:
        where = f"{what} in the loss"
    else:
        where = f"{what} in {found.module or 'the model itself'} ({found.kind})"
    largest = found.given or f"finite numbers, the largest {found.largest:.3g}"
    if found.direction == "forward":
        return f"first in forward, {where} makes {found.value} ({found.dtype}) of {largest}"
    return (
        f"forward is finite; in backward, {where} first makes {found.value} ({found.dtype}) of gradients of {largest}"
    )


def _weights(outcomes: Sequence[Outcome]) -> list[str]:
    names = sorted({name for outcome in outcomes for name in outcome.weights})
    if not names:
        return []
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return [f"before the step: not finite are {', '.join(names[:4])}{more} of the model itself"]


def _batches(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"rank {rank}: the batch: {outcome.batch_holds}" for rank, outcome in enumerate(outcomes) if outcome.batch_holds
    ]


def _nothing(outcomes: Sequence[Outcome]) -> str:
    if all(outcome.finite for outcome in outcomes):
        return "run again, every loss and gradient is finite: only their sum over ranks, or its norm, is not"
    return "run again, no single operation is at fault"


def _history(past: Sequence[Past]) -> list[str]:
    if not past:
        return []
    steps = f"steps {past[0].step} to {past[-1].step}" if len(past) > 1 else f"step {past[0].step}"
    lines = [f"loss of {steps}: {_row(one.loss for one in past)}"]
    if any(one.scale != 1 for one in past):
        lines.append(f"loss scale of {steps}: {_row(one.scale for one in past)}")
    return lines


def _row(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
