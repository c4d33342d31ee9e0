"""All ranks take their shares from one permutation.

What must hold
    Ranks that share data draw the same permutation in each pass: their shares are disjoint, and together they are
    everything.

Why
    A rank takes every N-th position of a permutation. If each has its own permutation, because of a seed that contains
    the rank, different epochs, or a draw from a generator that nobody seeded, some samples are read several times and
    others by nobody. With two ranks a quarter of the data is never read in an epoch.

How it shows
    Nothing fails. The number of steps is right.

Fix
    Seed the order alike on all ranks: no rank in the sampler's seed, the same value for `set_epoch`, and a
    generator with a fixed seed in samplers of one's own.

Example
        sampler = DistributedSampler(data, num_ranks, rank, seed=rank)   # shares of different permutations
        sampler = DistributedSampler(data, num_ranks, rank, seed=0)
"""

from collections.abc import Iterator
from itertools import combinations

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.data import Reading, Source, data_parallel, overlap, repeats, some, sources
from lockstep.rules.evidence.samples import Contents, Relation, relation
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS206", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100", "LS201", "LS207")

_NEARLY = 0.9  # what is nearly the same data is not a share


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Look for shares that overlap."""
    if not data_parallel(trace):
        return
    for source in sources(trace):
        if source.plain or not source.one_split:
            continue
        for readings in source.passes():
            pair = next((pair for pair in combinations(readings, 2) if _overlap(source, *pair)), None)
            if pair is not None:
                yield _finding(source, readings, *pair)
                break


def _overlap(source: Source, one: Reading, other: Reading) -> bool:
    """Whether two shares have more in common than padding, and less than everything."""
    first, second = one.ids, other.ids
    if (
        first is None
        or second is None
        or repeats(first) >= len(source.readings)
        or repeats(second) >= len(source.readings)
    ):
        return False
    ended = one.end is not None and other.end is not None
    if not ended and not source.rank_aware:
        return False
    both = len(overlap(first, second))
    if not len(source.readings) <= both < _NEARLY * max(len(first), len(second)):
        return False
    mine, theirs = Contents.of(source.readings[one.rank]), Contents.of(source.readings[other.rank])
    return source.rank_aware or relation(mine, theirs) is not Relation.OTHER


def _finding(source: Source, readings: tuple[Reading, ...], one: Reading, other: Reading) -> Finding:
    first, second = one.ids or (), other.ids or ()
    both = overlap(first, second)
    length = source.loaders[0].length
    seen = (
        f"in pass {one.begin.number} over {source.name} ranks {one.rank} and {other.rank} both read {len(both)} samples"
    )
    if length is not None and all(reading.end is not None for reading in readings):
        read = set().union(*(reading.ids or () for reading in readings))
        seen += f", and {length - len(read)} of {length} were read by no rank"
    epochs = (one.begin.epoch, other.begin.epoch)
    told = epochs[0] != epochs[1]
    return Finding(
        CODE,
        Severity.ERROR,
        f"{seen}: the ranks shuffle differently ({some(both)} are in both shares)",
        "all ranks take their shares from the same permutation",
        "call set_epoch with the same value on every rank" if told else "shuffle by the same seed on every rank",
        tuple(
            reading.witness(
                f"rank {reading.rank} read {some(reading.ids or ())}"
                + (f" in epoch {reading.begin.epoch}" if told else "")
            )
            for reading in (one, other)
        ),
    )
