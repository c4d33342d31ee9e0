"""Every rank makes the same number of steps.

What must hold
    In a pass all ranks have the same number of training batches, and make the same number of optimizer steps.

Why
    Each step is a meeting: its gradients are averaged over all ranks. A rank with one batch more waits for ever, or
    worse, it does not: its surplus step is averaged with the first step of the others' next epoch, and from there on
    every step is averaged with the wrong one.

How it shows
    A hang or "Connection closed by peer" at the end of an epoch, or of the whole training. Before that, nothing.

Fix
    Make the shares equal: `DistributedSampler` (it pads, or drops with `drop_last=True`), `drop_last=True` in the
    loader, or agree on the smallest number of batches before the epoch. Where shares must differ, `with
    model.join():`. A step that a rank would skip because of its own data or loss is agreed on first, by an all-
    reduce of a flag.

Example
        loader = DataLoader(Subset(data, range(rank, 49, 2)), 4)         # 7 batches here, 6 there
        loader = DataLoader(Subset(data, range(rank, 49, 2)), 4, drop_last=True)
"""

from collections.abc import Iterator
from itertools import combinations

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.data import Reading, Source, ended_itself, sources
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS209", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100", "LS105", "LS118", "LS121", "LS207")


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Count batches and steps, pass by pass."""
    for source in sources(trace):
        if not source.training or any(one.begin.joined for passes in source.readings for one in passes):
            continue
        finding = _in_a_pass(source) or _in_all(trace, source)
        if finding is not None:
            yield finding


def _in_a_pass(source: Source) -> Finding | None:
    for readings in source.passes():
        for one, other in combinations(readings, 2):
            more, less = (one, other) if one.used > other.used else (other, one)
            if more.used > less.used and less.end is not None:
                return _finding(more, less, more.used, less.used, "batches")
            if one.end is not None and other.end is not None and one.steps != other.steps:
                more, less = (one, other) if one.steps > other.steps else (other, one)
                return _finding(more, less, more.steps, less.steps, "optimizer steps")
    return None


def _in_all(trace: Trace, source: Source) -> Finding | None:
    """Of ranks that ended by themselves: whether another went on."""
    for one, other in combinations(source.readings, 2):
        more, less = (one, other) if _total(one) > _total(other) else (other, one)
        if _total(more) > _total(less) and ended_itself(trace.ranks[less[0].rank]) and not trace.cut:
            return _finding(more[-1], less[-1], _total(more), _total(less), "batches in the whole training")
    return None


def _total(passes: tuple[Reading, ...]) -> int:
    return sum(one.used for one in passes)


def _finding(more: Reading, less: Reading, many: int, few: int, what: str) -> Finding:
    where = "" if "whole" in what else f" in pass {more.begin.number} over {more.loader.stream}"
    return Finding(
        CODE,
        Severity.ERROR,
        f"rank {more.rank} had {many} {what} and rank {less.rank} {few}{where}",
        "all ranks have the same number of batches and make the same number of steps",
        "make the ranks' shares equal (DistributedSampler, drop_last=True), or agree before one skips or stops",
        (
            more.witness(f"rank {more.rank}: {many} {what}, from {_length(more)}"),
            less.witness(f"rank {less.rank}: {few} {what}, from {_length(less)}"),
        ),
    )


def _length(reading: Reading) -> str:
    length = reading.loader.length
    return "a stream" if length is None else f"{length} samples"
