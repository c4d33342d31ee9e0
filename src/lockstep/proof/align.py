"""Two runs side by side: what led to each optimizer step, and what a parameter is called."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from lockstep.trace.events import Batch, Event, Optimizer, Step
from lockstep.trace.trace import RankTrace, Trace

E = TypeVar("E", bound=Event)


class Traced(Protocol):
    """A take, or whatever has a trace."""

    @property
    def trace(self) -> Trace:
        """Its ranks."""
        ...


@dataclass(frozen=True)
class StepView:
    """One optimizer step of one rank, and everything since the step before (of whichever optimizer)."""

    step: Step
    before: tuple[Event, ...]

    @property
    def key(self) -> tuple[int, int]:
        """(optimizer, number): the same step in another run."""
        return self.step.optimizer, self.step.number

    def of(self, kind: type[E]) -> Iterator[E]:
        """The events of one kind that led to this step."""
        return (event for event in self.before if isinstance(event, kind))


def views(rank: RankTrace) -> list[StepView]:
    """All steps of a rank, in order."""
    found, since = [], 0
    for index, event in enumerate(rank.events):
        if isinstance(event, Step):
            found.append(StepView(event, rank.events[since:index]))
            since = index + 1
    return found


def paired(reference: RankTrace, rank: RankTrace) -> list[tuple[StepView, StepView]]:
    """The steps that both have, in the order of the reference."""
    mine = {view.key: view for view in views(rank)}
    return [(view, mine[view.key]) for view in views(reference) if view.key in mine]


def parameter_names(rank: RankTrace) -> dict[tuple[int, str], str]:
    """{(optimizer, key): name} for people: `layers.1.weight`, with the model's number where there are several."""
    told = list(rank.of(Optimizer))
    several = len({name.partition(":")[0] for event in told for name in event.names if name}) > 1
    return {
        (event.optimizer, key): (name if several else name.partition(":")[2]) or f"parameter {key}"
        for event in told
        for key, name in zip(event.keys, event.names, strict=True)
    }


@dataclass(frozen=True)
class Layout:
    """How a distributed program cuts what the reference does in one step.

    Attributes:
        micro_reference, micro: batches a step, of the reference and of a rank.
        size_reference, size: samples a batch, of the reference and of a rank.
        num_ranks: of the distributed program.
        whole: streams that every rank reads whole, or only one rank.
    """

    micro_reference: int
    micro: int
    size_reference: int
    size: int
    num_ranks: int
    whole: tuple[str, ...] = ()

    @property
    def batch_reference(self) -> int:
        """Samples a step of the reference."""
        return self.micro_reference * self.size_reference

    @property
    def batch(self) -> int:
        """Samples a step over all ranks."""
        return self.micro * self.size * self.num_ranks

    @property
    def grow(self) -> int:
        """How many times larger the global batch is, where it is a whole number; else 1."""
        ratio = Fraction(self.batch, self.batch_reference) if self.batch_reference else Fraction(1)
        return ratio.numerator if ratio.denominator == 1 else 1

    @property
    def per(self) -> tuple[int, int]:
        """(p, q): p batches of the reference are q of a rank."""
        ratio = Fraction(self.micro_reference, self.micro) if self.micro else Fraction(1)
        return ratio.numerator, ratio.denominator


def layout(reference: Trace, distributed: Trace) -> Layout:
    """Read off two traces how the one cuts the other's steps."""
    one, rank = reference.ranks[0], distributed.ranks[0]
    micro_reference, size_reference = _cut(one)
    micro, size = _cut(rank)
    return Layout(micro_reference, micro, size_reference, size, distributed.num_ranks, _whole(distributed))


def _cut(rank: RankTrace) -> tuple[int, int]:
    """Training batches a step, and samples a batch, as they mostly are."""
    first = next((view.step.optimizer for view in views(rank)), 0)
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    held = 0
    for view in views(rank):
        taken = [batch for batch in view.of(Batch) if batch.grad]
        streams = Counter(batch.stream for batch in taken)
        held += max(streams.values(), default=0)
        sizes.update(batch.size for batch in taken if batch.size)
        if view.step.optimizer == first:
            counts[held] += 1
            held = 0
    return _most(counts, 1), _most(sizes, 0)


def _most(counts: Counter[int], default: int) -> int:
    positive = {value: count for value, count in counts.items() if value > 0}
    return max(positive, key=lambda value: (positive[value], value)) if positive else default


def _whole(trace: Trace) -> tuple[str, ...]:
    """Streams of which every rank that reads them reads the same."""
    read: dict[str, list[set[object]]] = {}
    for rank in trace.ranks:
        mine: dict[str, set[object]] = {}
        for batch in rank.of(Batch):
            if batch.number == 0:
                mine.setdefault(batch.stream, set()).update(samples(batch))
        for stream, seen in mine.items():
            read.setdefault(stream, []).append(seen)
    return tuple(
        stream
        for stream, ranks in read.items()
        if len(ranks) < trace.num_ranks or all(one == ranks[0] for one in ranks)
    )


def samples(batch: Batch) -> tuple[object, ...]:
    """What identifies the samples of a batch: indices, or digests of their content."""
    if batch.ids is not None:
        return batch.ids
    rows: Mapping[str, tuple[str, ...]] = batch.rows
    return tuple(zip(*rows.values(), strict=False)) if rows else ()


Rates = tuple[tuple[tuple[float, ...], ...], ...]


def rates_of(take: Traced) -> Rates:
    """Learning rates: of each optimizer, step by step, group by group."""
    found: dict[int, list[tuple[float, ...]]] = {}
    for view in views(take.trace.ranks[0]):
        found.setdefault(view.step.optimizer, []).append(view.step.lr)
    return tuple(tuple(found.get(number, ())) for number in range(max(found, default=-1) + 1))


def left_out(reference: RankTrace, rank: RankTrace) -> StepView | None:
    """The first step of the reference that a rank has passed over: it made a later one of the same run, or none of
    this optimizer."""
    mine = {view.key for view in views(rank)}
    wanted = views(reference)
    last = max((index for index, view in enumerate(wanted) if view.key in mine), default=-1)
    return next((view for view in wanted[:last] if view.key not in mine), None)
