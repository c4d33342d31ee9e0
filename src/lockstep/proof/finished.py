"""A finished run as its numbers: of a trace that `lockstep run --record` left, or of a folder of `lockstep train`."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.core.errors import UserError, explain
from lockstep.proof.align import views
from lockstep.trace.events import Backward, Batch, Forward
from lockstep.trace.trace import RankTrace, Trace, read_trace

Span = tuple[int, int]
"""(steps before, steps after) of what a number is the mean over."""


@dataclass(frozen=True)
class Finished:
    """A run.

    Attributes:
        steps: optimizer steps (of the first optimizer). ended: it came to its end by itself.
        losses: {span: mean over ranks and steps}, the spans one after the other. rates: {steps done: learning rate of
            the last step}.
        batch: samples of a step over all ranks, None where unknown.
        low: numbers of less than 32 bits are in it.
        trace: None for a folder of `lockstep train`. files: that were read.
    """

    folder: Path
    num_ranks: int
    steps: int
    ended: bool
    losses: Mapping[Span, float]
    rates: Mapping[int, float]
    batch: int | None
    low: bool
    trace: Trace | None
    files: tuple[Path, ...]

    @property
    def told(self) -> str:
        """In a few words."""
        ranks = f"{self.num_ranks} rank{'s' * (self.num_ranks > 1)}"
        batch = f", {self.batch} samples a step" if self.batch else ""
        return f"{self.folder.name} ({ranks}, {self.steps} steps{batch})"


def read_run(folder: Path) -> Finished:
    """Read a run's folder.

    Raises:
        UserError: it holds neither a trace nor a run of `lockstep train`.
    """
    if any(folder.glob("rank-*.jsonl")):
        return _of_trace(folder)
    if (folder / "metrics.jsonl").is_file() and (folder / "manifest.json").is_file():
        return _of_train(folder)
    must = (
        "a folder of `lockstep run --record` (rank-00000.jsonl) or of `lockstep train` (metrics.jsonl, manifest.json)"
    )
    raise UserError(explain(f"{folder} holds no finished run", must, "--compare"))


def _of_trace(folder: Path) -> Finished:
    trace = read_trace(folder)
    ranks = [[view for view in views(rank) if view.step.optimizer == 0] for rank in trace.ranks]
    steps = min(map(len, ranks))
    losses: dict[Span, float] = {}
    for step in range(steps):
        each = [[event.loss for event in mine[step].of(Backward) if event.loss is not None] for mine in ranks]
        if all(each):
            losses[step, step + 1] = sum(sum(one) / len(one) for one in each) / len(each)
    rates = {view.step.number + 1: view.step.lr[0] for view in ranks[0][:steps] if view.step.lr}
    ends = [rank.end for rank in trace.ranks]
    return Finished(
        folder,
        trace.num_ranks,
        steps,
        all(end is not None and end.how in ("returned", "exited") for end in ends),
        losses,
        rates,
        _global_batch(trace),
        any(event.autocast for rank in trace.ranks for event in rank.of(Forward)),
        trace,
        tuple(sorted(folder.glob("rank-*.jsonl"))),
    )


def _global_batch(trace: Trace) -> int | None:
    """Samples of a step over all ranks, as they mostly are."""
    totals: Counter[int] = Counter()
    for step in zip(*map(_sizes, trace.ranks), strict=False):
        totals[sum(step)] += 1
    return max(totals, key=lambda size: (totals[size], size)) or None if totals else None


def _sizes(rank: RankTrace) -> list[int]:
    return [sum(batch.size or 0 for batch in view.of(Batch) if batch.grad) for view in views(rank)]


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl that tell of training; a line that is none is left out."""
    found = []
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int) and "lr" in record:
            found.append(record)
    return sorted(found, key=lambda record: record["step"])


def _of_train(folder: Path) -> Finished:
    try:
        about = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        ranks, batch, precision = int(about["num_ranks"]), int(about["global_batch"]), str(about["precision"])
    except (ValueError, KeyError, TypeError) as error:
        seen = f"manifest.json cannot be read ({error!r})"
        raise UserError(explain(seen, "as `lockstep train` writes it", str(folder))) from None
    losses: dict[Span, float] = {}
    rates: dict[int, float] = {}
    before = 0
    for record in read_journal(folder):
        if isinstance(record.get("loss"), int | float):
            losses[before, record["step"]] = float(record["loss"])
        rates[record["step"]] = float(record["lr"])
        before = record["step"]
    steps = int(about.get("end", {}).get("step", before))
    files = folder / "metrics.jsonl", folder / "manifest.json"
    low = precision in ("bf16", "fp16")
    return Finished(folder, ranks, steps, "ended" in about, losses, rates, batch, low, None, files)


def together(one: Mapping[Span, float], other: Mapping[Span, float]) -> list[tuple[Span, float, float]]:
    """Both losses over the same spans: shorter ones are put together until their ends meet."""
    found: list[tuple[Span, float, float]] = []
    sides = [sorted(one.items()), sorted(other.items())]
    held: list[list[tuple[Span, float]]] = [[], []]
    while True:
        behind = 0 if not held[0] or (held[1] and held[0][-1][0][1] < held[1][-1][0][1]) else 1
        if not sides[behind]:
            return found
        held[behind].append(sides[behind].pop(0))
        if held[0] and held[1] and held[0][-1][0][1] == held[1][-1][0][1]:
            if held[0][0][0][0] == held[1][0][0][0]:
                span = held[0][0][0][0], held[0][-1][0][1]
                found.append((span, _mean(held[0]), _mean(held[1])))
            held = [[], []]


def _mean(parts: list[tuple[Span, float]]) -> float:
    steps = sum(span[1] - span[0] for span, _ in parts)
    return sum((span[1] - span[0]) * loss for span, loss in parts) / steps
