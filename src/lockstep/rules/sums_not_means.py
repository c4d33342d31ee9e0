"""Sums and counts travel, not means.

What must hold
    Where ranks hold different numbers of samples, the sums and the counts are reduced, and the mean is computed once.

Why
    The mean of the ranks' means weighs a sample by the rank it lies on. With 17 samples on one rank and 16 on the other
    each of the 17 counts less than each of the 16.

How it shows
    The metric differs a little from that of one process, and from one number of ranks to another. The fewer samples a
    rank holds, and the more unequal the shares, the more.

Fix
    Reduce the tensor (sum, count), then divide: `dist.all_reduce(counts)`, `counts[0] / counts[1]`.

Example
    twins/sums_not_means: 33 samples on 2 ranks; each computes its accuracy, and the two are averaged.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.scale import Evaluation, evaluations, numbers, shared_out
from lockstep.trace.events import Collective, Output
from lockstep.trace.trace import Trace

CODE = "LS402"
LAW = Law.SCALE
NEED = 2
AFTER: tuple[str, ...] = ("LS100", "LS203", "LS401")

_REDUCTIONS = ("all_reduce", "reduce", "all_gather", "gather", "all_gather_into_tensor")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that averages means."""
    over: set[str] = set()
    for ranks in evaluations(trace):
        sizes = [one.size for one in ranks]
        if len(set(sizes)) == 1 or min(sizes) == 0 or len(ranks) < trace.num_ranks or not shared_out(trace, ranks):
            continue
        for mean in _means(ranks, sizes):
            if mean.calls[0].at not in over and mean.of_means != mean.of_all:
                over.add(mean.calls[0].at)
                yield _finding(mean)


@dataclass(frozen=True)
class _Mean:
    """A value of each rank that is the mean over its samples. calls: one a rank; values, sizes: one a rank."""

    calls: tuple[Collective, ...]
    values: tuple[float, ...]
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]

    @property
    def of_means(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def of_all(self) -> float:
        return sum(value * size for value, size in zip(self.values, self.sizes, strict=True)) / sum(self.sizes)


def _means(ranks: Sequence[Evaluation], sizes: Sequence[int]) -> Iterator[_Mean]:
    lines = list(zip(*(_calls(one) for one in ranks), strict=False))
    columns = [
        (calls, tuple(values))
        for calls in lines
        for values in zip(*(call.given for call in calls), strict=False)
        if len({call.op for call in calls}) == 1
    ]
    # A count of samples that travels too is what a right program needs the values for.
    if any(list(values) == [float(size) for size in sizes] for _, values in columns):
        return
    said = [
        number for one in ranks for event in one.after if isinstance(event, Output) for number in numbers(event.text)
    ]
    for calls, values in columns:
        mean = _Mean(calls, values, tuple(sizes), tuple(one.rank for one in ranks))
        if calls[0].reduce == "avg" or _shares_of_counts(calls, values, sizes) or _is_said(mean, said):
            yield mean


def _calls(one: Evaluation) -> list[Collective]:
    return [call for call in one.reductions if call.op in _REDUCTIONS and "float" in call.dtype and call.given]


def _shares_of_counts(calls: Sequence[Collective], values: Sequence[float], sizes: Sequence[int]) -> bool:
    """Whether each rank reduces k / n with a whole k and its own number n of samples: an accuracy of its share."""
    if (
        calls[0].op not in ("all_reduce", "reduce")
        or calls[0].reduce != "sum"
        or all(value == int(value) for value in values)
    ):
        return False
    scale = 100.0 if max(values) > 1 else 1.0
    hits = [value * size / scale for value, size in zip(values, sizes, strict=True)]
    return all(0 <= hit <= size and abs(hit - round(hit)) < 2e-5 * size for hit, size in zip(hits, sizes, strict=True))


def _is_said(mean: _Mean, said: Sequence[tuple[float, float]]) -> bool:
    """Whether the mean of the means was printed, to at least three digits, and cannot be the mean over all."""
    if any(not math.isfinite(value) for value in mean.values) or any(value in mean.values for value, _ in said):
        return False
    return any(
        error < 1e-3 and abs(value - mean.of_means) <= error and abs(value - mean.of_all) > error
        for value, error in said
    )


def _finding(mean: _Mean) -> Finding:
    shares = " and ".join(str(size) for size in mean.sizes)
    values = " and ".join(f"{value:.6g}" for value in mean.values)
    return Finding(
        CODE,
        Severity.DEVIATION,
        f"ranks hold {shares} samples with means {values}; the mean of the means is {mean.of_means:.6g}, "
        f"over all samples it is {mean.of_all:.6g} ({abs(mean.of_means - mean.of_all):.2g} off).",
        "sums and counts are reduced, and the mean is computed once",
        "`dist.all_reduce` the tensor (sum, count), then divide",
        tuple(
            Witness(f"reduces {value:.6g}, the mean of its {size} samples", rank, call.step, Place.parse(call.at))
            for rank, call, value, size in zip(mean.ranks, mean.calls, mean.values, mean.sizes, strict=True)
        ),
    )
