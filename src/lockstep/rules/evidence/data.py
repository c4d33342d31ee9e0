"""Who read which samples: the passes over loaders of every rank, and which of them belong together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from lockstep.core.finding import Place, Witness
from lockstep.trace.events import (
    Backward,
    Batch,
    Event,
    Forward,
    Loader,
    Pass,
    PassEnd,
    Step,
    Wrap,
)
from lockstep.trace.trace import RankTrace, Trace

PLAIN_SAMPLERS = frozenset({"SequentialSampler", "RandomSampler", "WeightedRandomSampler"})
"""Of torch, which know nothing of ranks."""

Row = tuple[tuple[str, str], ...]
"""What one sample holds: (tensor of the batch, digest), of all that have one row a sample."""


@dataclass
class Reading:
    """One pass of one rank over a loader.

    Attributes:
        batches: handed out. end: None where the script left the pass, or the trace ends in it.
        used: batches that a forward with gradients followed, or what trained counts.
        trained: batches that a backward pass or an optimizer step followed.
        steps: optimizer steps while the pass was open.
        evaluated: a forward without gradients, or in evaluation mode, happened on a batch of it.
        inputs: what the model was given after each batch (digests; "" where not told).
        first: where the pass begins among the events of the rank.
    """

    rank: int
    loader: Loader
    begin: Pass
    batches: list[Batch] = field(default_factory=list)
    end: PassEnd | None = None
    used: int = 0
    trained: int = 0
    steps: int = 0
    evaluated: bool = False
    inputs: list[str] = field(default_factory=list)
    first: int = 0

    @property
    def training(self) -> bool:
        """Whether the model was trained on it."""
        return bool(self.batches) and 2 * self.trained >= len(self.batches)

    @property
    def ids(self) -> tuple[int, ...] | None:
        """Sample indices in the order of reading; None for iterables."""
        if any(batch.ids is None for batch in self.batches):
            return None
        return tuple(index for batch in self.batches for index in batch.ids or ())

    @property
    def rows(self) -> tuple[Row, ...]:
        """What each sample held, in the order of reading, as far as it was told."""
        return tuple(row for batch in self.batches for row in rows_of(batch))

    @property
    def place(self) -> Place | None:
        """Where the loader was built; where it is iterated if that is unknown."""
        return Place.parse(self.loader.at) or Place.parse(self.begin.at)

    def witness(self, text: str) -> Witness:
        """This rank's side."""
        return Witness(text, self.rank, self.begin.step, self.place)


@dataclass(frozen=True)
class Source:
    """The same data on all ranks: readings of each rank in order. training: what they were read for."""

    name: str
    training: bool
    readings: tuple[tuple[Reading, ...], ...]

    @property
    def loaders(self) -> tuple[Loader, ...]:
        """The loader of each rank."""
        return tuple(one[0].loader for one in self.readings)

    def passes(self) -> Iterator[tuple[Reading, ...]]:
        """Pass by pass, one reading a rank; as many as every rank has."""
        return zip(*self.readings, strict=False)

    @property
    def rank_aware(self) -> bool:
        """Whether every rank's sampler knows that there are so many ranks."""
        return all(loader.sampler_ranks == len(self.readings) for loader in self.loaders)

    @property
    def plain(self) -> bool:
        """Whether the samplers are torch's own that know nothing of ranks."""
        return all(loader.sampler in PLAIN_SAMPLERS for loader in self.loaders)

    @property
    def one_split(self) -> bool:
        """Whether all ranks name the same samples as the loader's whole."""
        return len({(loader.split, loader.length, loader.root_length) for loader in self.loaders}) == 1


def rows_of(batch: Batch) -> Iterator[Row]:
    """What each sample of a batch held."""
    names = sorted(batch.rows)
    for values in zip(*(batch.rows[name] for name in names), strict=False):
        yield tuple(zip(names, values, strict=True))


def sources(trace: Trace) -> tuple[Source, ...]:
    """All data that every rank has read; a rank that read for training is not compared with one that evaluated."""
    ranks = [_grouped(readings(rank)) for rank in trace.ranks]
    found = []
    for key in ranks[0]:
        partners = [_partner(key, ranks[0], other) for other in ranks[1:]]
        if all(partner is not None for partner in partners):
            sides = tuple(tuple(one) for one in (ranks[0][key], *(partner for partner in partners if partner)))
            found.append(Source(key[0], key[2], sides))
    return tuple(found)


_Key = tuple[str, str, bool]


def _grouped(all_readings: Sequence[Reading]) -> dict[_Key, list[Reading]]:
    groups: dict[_Key, list[Reading]] = {}
    trained: set[int] = set()
    for one in all_readings:
        # Of a pass that ends with the trace there may be no trained batch yet.
        cut = one.end is None and not one.evaluated and one.loader.loader in trained
        training = one.training or cut
        if training:
            trained.add(one.loader.loader)
        groups.setdefault((one.loader.stream, one.loader.at, training), []).append(one)
    return groups


def _partner(key: _Key, mine: dict[_Key, list[Reading]], theirs: dict[_Key, list[Reading]]) -> list[Reading] | None:
    """The same data on another rank: of the same name, else built by the same line (lengths may differ)."""
    if key in theirs:
        return theirs[key]
    alone = [one for one in mine if one not in theirs and _alike(one, key, mine[one], mine[key])]
    left = [one for one in theirs if one not in mine and _alike(one, key, theirs[one], mine[key])]
    return theirs[left[alone.index(key)]] if len(alone) == len(left) else None


def _alike(one: _Key, other: _Key, readings_a: list[Reading], readings_b: list[Reading]) -> bool:
    a, b = readings_a[0].loader, readings_b[0].loader
    return one[1:] == other[1:] and bool(one[1]) and (a.dataset, a.root, a.ids) == (b.dataset, b.root, b.ids)


def readings(rank: RankTrace) -> tuple[Reading, ...]:
    """All passes of one rank, in the order in which they began."""
    walk = _Walk(rank.rank)
    for number, event in enumerate(rank.events):
        walk.take(event, number)
    return tuple(walk.found)


@dataclass
class _Open:
    """A batch that was handed out and may be in use. trains: a forward with gradients saw it; looks: one without."""

    reading: Reading
    trains: bool = False
    looks: bool = False


class _Walk:
    """Goes through the events of a rank and keeps what is open."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.loaders: dict[int, Loader] = {}
        self.found: list[Reading] = []
        self.current: dict[int, Reading] = {}
        self.open: dict[int, _Open] = {}

    def take(self, event: Event, number: int) -> None:
        """The next event."""
        match event:
            case Loader():
                self.loaders[event.loader] = event
            case Pass():
                self._begin(event, number)
            case Batch():
                self._batch(event)
            case PassEnd():
                self._end(event)
            case Forward():
                self._forward(event)
            case Backward() | Step():
                self._trained(isinstance(event, Step))
            case _:
                pass

    def _begin(self, event: Pass, number: int) -> None:
        if event.loader in self.loaders:
            self.open.pop(event.loader, None)
            self.current[event.loader] = Reading(self.rank, self.loaders[event.loader], event, first=number)
            self.found.append(self.current[event.loader])

    def _batch(self, event: Batch) -> None:
        reading = self.current.get(event.loader)
        if reading is None or reading.begin.number != event.number:
            return
        for loader, one in list(self.open.items()):
            if loader != event.loader and one.looks and not one.trains:
                del self.open[loader]  # it was evaluated, and the script went on with other data
        reading.batches.append(event)
        reading.inputs.append("")
        self.open[event.loader] = _Open(reading)

    def _end(self, event: PassEnd) -> None:
        reading = self.current.get(event.loader)
        if reading is not None and reading.begin.number == event.number:
            reading.end = event
            self.open.pop(event.loader, None)
            del self.current[event.loader]

    def _forward(self, event: Forward) -> None:
        for one in self.open.values():
            one.reading.used += event.grad and not one.trains
            one.trains |= event.grad
            one.looks |= not event.grad
            one.reading.evaluated |= not event.grad or not event.training
            if not one.reading.inputs[-1]:
                one.reading.inputs[-1] = event.inputs

    def _trained(self, step: bool) -> None:
        for one in self.open.values():
            one.reading.used += not one.trains
            one.reading.trained += 1
        self.open.clear()
        if step:
            for reading in self.current.values():
                reading.steps += 1


def overlap(first: Sequence[int], second: Sequence[int]) -> set[int]:
    """Samples of both."""
    return set(first) & set(second)


def repeats(ids: Sequence[int]) -> int:
    """How many of them were there before."""
    return len(ids) - len(set(ids))


def rising(ids: Sequence[int]) -> bool:
    """Whether they are in the order of the dataset."""
    return all(first < second for first, second in pairwise(ids))


def data_parallel(trace: Trace) -> bool:
    """Whether all ranks share one copy of the model's work; not so where models are wrapped in groups of some ranks."""
    groups = {event.group_size for rank in trace.ranks for event in rank.of(Wrap)}
    return all(size in (1, trace.num_ranks) for size in groups)


def ended_itself(rank: RankTrace) -> bool:
    """Whether the script of this rank ran to its end."""
    return rank.end is not None and rank.end.how in ("returned", "exited") and rank.end.code == 0


def some(values: Sequence[int] | set[int], limit: int = 6) -> str:
    """The first few, for a sentence."""
    listed = list(values) if isinstance(values, Sequence) else sorted(values)
    return ", ".join(str(one) for one in listed[:limit]) + (", ..." if len(listed) > limit else "")
