"""In a pass every sample is read by some rank.

What must hold
    All ranks together read, in a complete pass, every sample of the loader's data, but for what `drop_last` leaves out.

Why
    A share of a share is less than a share: when the data are divided by hand and then by a sampler once more, each
    epoch trains on one N-th of them. The epoch is short, which looks like a speed-up.

How it shows
    Epochs have N times fewer steps than they should have on N ranks. The loss falls more slowly per epoch.

Fix
    Divide once: give the sampler the whole dataset, or give the divided dataset a plain loader.

Example
        mine = Subset(data, range(rank, len(data), num_ranks))
        loader = DataLoader(mine, sampler=DistributedSampler(mine))      # an N-th of an N-th
        loader = DataLoader(data, sampler=DistributedSampler(data))
"""

from collections.abc import Iterator
from itertools import combinations

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.data import Reading, Source, overlap, repeats, some, sources
from lockstep.rules.evidence.samples import Contents, Relation, relation
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS202", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100", "LS201", "LS206", "LS207")


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Look for samples of complete passes that nobody has read."""
    for source in sources(trace):
        if not source.rank_aware:  # other samplers may leave samples out on purpose
            continue
        for readings in source.passes():
            finding = _unread(source, readings)
            if finding is not None:
                yield finding
                break


def _unread(source: Source, readings: tuple[Reading, ...]) -> Finding | None:
    if any(one.end is None or one.ids is None or one.loader.length is None for one in readings):
        return None
    if _drawn_apart(source, readings):
        return None
    groups = _groups(source, readings)
    left = sum((group[0].loader.length or 0) - len(_read(group)) for group in groups)
    total = sum(group[0].loader.length or 0 for group in groups)
    if left <= sum(_allowed(group) for group in groups):
        return None
    twice = len(groups) > 1
    reason = "each rank divides a part that is already its own" if twice else "the shares do not cover the data"
    return Finding(
        CODE,
        Severity.ERROR,
        f"in pass {readings[0].begin.number} over {source.name} {left} of {total} samples were read by no "
        f"rank: {reason}",
        "all ranks together read every sample in a pass",
        "divide the data once: give the sampler the whole dataset, or the rank's own part a loader without a sampler"
        if twice
        else "let the ranks' shares cover the data: rank r of N takes positions r, r + N, r + 2 N, ...",
        tuple(
            one.witness(f"rank {one.rank} read {len(set(one.ids or ()))} of {one.loader.length}: {some(one.ids or ())}")
            for one in readings
        ),
    )


def _drawn_apart(source: Source, readings: tuple[Reading, ...]) -> bool:
    """Whether samples were drawn with replacement, or ranks drew in different orders: other rules' matter."""
    for one in readings:
        if repeats(one.ids or ()) >= len(readings):
            return True
    return any(
        len(overlap(one.ids or (), other.ids or ())) >= len(readings)
        for one, other in combinations(readings, 2)
        if not _apart(source, one, other)
    )


def _groups(source: Source, readings: tuple[Reading, ...]) -> list[list[Reading]]:
    """Ranks that divide the same data."""
    groups: list[list[Reading]] = []
    for one in readings:
        fitting = (group for group in groups if not _apart(source, group[0], one))
        group = next(fitting, None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def _apart(source: Source, one: Reading, other: Reading) -> bool:
    """Whether two ranks have data of their own: other Subsets, or other samples under the same indices."""
    if (one.loader.split, one.loader.length) != (other.loader.split, other.loader.length):
        return True
    first, second = Contents.of(source.readings[one.rank]), Contents.of(source.readings[other.rank])
    return relation(first, second) is Relation.OTHER


def _read(group: list[Reading]) -> set[int]:
    return set().union(*(one.ids or () for one in group))


def _allowed(group: list[Reading]) -> int:
    """Samples that may be left out: a sampler's tail, and each rank's last batch where it is dropped."""
    last = max((len(batch.ids or ()) for one in group for batch in one.batches), default=1) - 1
    dropped = any(one.loader.drop_last or one.loader.batch_size is None for one in group)
    tail = (group[0].loader.sampler_ranks or len(group)) - 1
    return tail + (last * len(group) if dropped else 0)
