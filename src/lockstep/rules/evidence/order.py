"""Orders of passes: whether they repeat, and what epochs the samplers were told."""

from lockstep.rules.evidence.data import Reading, Source
from lockstep.trace.events import SetEpoch
from lockstep.trace.trace import Trace

_ENOUGH = 5  # samples; the odds that so many fall into the same order by chance are 1 in 120 a rank


def repeated(source: Source) -> int:
    """Passes of a training by shares that all have one order on every rank; 0 where orders change, or where that is
    for nobody to say."""
    if not source.training or not _shared_out(source):
        return 0
    if min(len(one) for one in source.readings) < 2:
        return 0
    for passes in source.readings:
        first = passes[0]
        if any(not _same(first, other) for other in passes[1:]):
            return 0
    return min(len(one) for one in source.readings)


def _shared_out(source: Source) -> bool:
    """Whether a sampler that knows the ranks decides the order: it says so, or what ranks read is disjoint."""
    if source.rank_aware:
        return True
    if source.plain or not source.one_split:
        return False
    shares = [set(one[0].ids or ()) for one in source.readings]
    return all(shares) and sum(map(len, shares)) == len(set().union(*shares))


def _same(one: Reading, other: Reading) -> bool:
    first, second = one.ids or (), other.ids or ()
    length = min(len(first), len(second))
    return length >= _ENOUGH and len(set(first[:length])) >= _ENOUGH and first[:length] == second[:length]


def told_epochs(trace: Trace, source: Source) -> list[int]:
    """Different values that `set_epoch` of the loader's sampler was called with, or of a sampler of no loader."""
    mine = {reading.loader.loader for reading in source.readings[0]}
    calls = [event.value for event in trace.ranks[0].of(SetEpoch) if event.loader is None or event.loader in mine]
    had = [reading.begin.epoch for reading in source.readings[0] if reading.begin.epoch is not None]
    return sorted(set(had) if len(set(had)) > 1 else set(calls))
