"""Every rank trains on a share of its own.

What must hold
    In one pass over the training data no sample is read by two ranks, but for the few that a sampler repeats to
    make the shares equal (at most one less than there are ranks).

Why
    With N ranks that all read everything, N times the work is done for one. If they read in the same order, all
    ranks compute the same gradient and their mean is what one rank has: nothing is gained. If they read in
    different orders, an epoch is N epochs, and a schedule that counts epochs runs N times too long.

How it shows
    Nothing fails, and the loss looks fine. An epoch on four ranks has as many steps as on one.

Fix
    Give the loader a sampler that knows the ranks: `DistributedSampler(data)`, with `set_epoch(epoch)` before each
    epoch, instead of `shuffle=True`. Use the one that was built: `sampler=sampler`. A batch sampler or a weighted
    sampler draws from a generator that is seeded alike on all ranks, and each rank takes every N-th draw. An
    iterable dataset skips what belongs to other ranks: `islice(stream, rank, None, num_ranks)`.

Example
        loader = DataLoader(data, batch_size=32, shuffle=True)               # every rank reads everything
        loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
"""

from collections.abc import Iterator
from itertools import combinations

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.data import Reading, Source, data_parallel, overlap, repeats, some, sources
from lockstep.rules.evidence.results import SUMS, put_together
from lockstep.rules.evidence.samples import same_samples
from lockstep.trace.events import Forward
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS201", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100",)

_NEARLY = 0.9  # of a share
_FEW_ROWS = 4


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Compare who read what, pass by pass."""
    if not data_parallel(trace):  # ranks that work on one copy together read the same samples
        return
    found = [source for source in sources(trace) if source.training]
    for source in found:
        yield from _first(source)
    if not found:
        yield from _without_loader(trace)
    sizes = {source.loaders[0].batch_size for source in found}
    for source in sources(trace):
        # A batch of another size is one that nobody has divided by the number of ranks.
        if not source.training and source.plain and source.one_split and source.loaders[0].batch_size in sizes:
            yield from _same_part(trace, source)


def _first(source: Source) -> Iterator[Finding]:
    """The first pass and pair of ranks that read the same."""
    for readings in source.passes():
        for one, other in combinations(readings, 2):
            text = _shared(source, one, other)
            if text:
                yield _finding(source, one, other, text)
                return


def _shared(source: Source, one: Reading, other: Reading) -> str:
    """What two ranks have in common beyond padding, in words; "" for nothing."""
    if _cut_by_hand(one, other):
        return ""
    if one.ids is None or other.ids is None:
        return _shared_rows(one, other)
    both = overlap(one.ids, other.ids)
    if len(both) < len(source.readings) or not _shares(source, one, other):
        return ""
    if not same_samples(source.readings[one.rank], source.readings[other.rank]):
        return ""
    order = "in the same order" if _same_order(one.ids, other.ids) else "in different orders"
    few = min(len(set(one.ids)), len(set(other.ids)))
    return f"{len(both)} of {few} samples of their own in common, {order} ({some(one.ids)} and {some(other.ids)})"


def _shares(source: Source, one: Reading, other: Reading) -> bool:
    """Whether what two ranks have in common is no accident of two shares that were drawn differently."""
    first, second = one.ids or (), other.ids or ()
    if _same_order(first, second):
        return True
    ended = one.end is not None and other.end is not None
    if repeats(first) or repeats(second):  # with replacement: a whole pass that each rank makes by itself
        length = source.loaders[0].length or 0
        return source.plain and source.one_split and ended and min(len(first), len(second)) >= _NEARLY * length
    if ended and len(overlap(first, second)) >= _NEARLY * max(len(first), len(second)):
        return True
    return source.plain and source.one_split


def _same_order(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    length = min(len(first), len(second))
    return length >= 2 and first[:length] == second[:length] and len(set(first[:length])) >= 2


def _shared_rows(one: Reading, other: Reading) -> str:
    first, second = one.rows, other.rows
    length = min(len(first), len(second))
    if length and first[:length] == second[:length] and len(set(first[:length])) >= _FEW_ROWS:
        return f"the same {length} samples in the same order (by what they hold)"
    both = set(first) & set(second)
    if len(both) >= 2 * _FEW_ROWS and len(both) >= _NEARLY * max(len(set(first)), len(set(second))):
        return f"{len(both)} samples in common (by what they hold)"
    return ""


def _cut_by_hand(one: Reading, other: Reading) -> bool:
    """Whether the script gives each rank's model another part of batches that are the same."""
    return any(
        a.rows and a.rows == b.rows and x and y and x != y
        for a, b, x, y in zip(one.batches, other.batches, one.inputs, other.inputs, strict=False)
    )


def _same_part(trace: Trace, source: Source) -> Iterator[Finding]:
    """Evaluations that all ranks leave at the same place, having read the same, and put together nevertheless.

    Of the whole data that is only more work than need be; of a part, ranks together were meant to read more of it.
    """
    for readings in source.passes():
        first, ids = readings[0], readings[0].ids or ()
        length = source.loaders[0].length or 0
        if any(one.end is not None or not one.evaluated or one.ids != ids for one in readings):
            continue
        if not 2 <= len(set(ids)) < length or not same_samples(source.readings[0], source.readings[-1]):
            continue
        if any(call.op in SUMS for call in put_together(trace.ranks[0], first)):
            yield Finding(
                CODE,
                Severity.DEVIATION,
                f"all ranks evaluated the same {len(set(ids))} of {length} samples and put their results together; the "
                "other samples were evaluated by no rank",
                "ranks that put results together have evaluated samples of their own",
                "deal out the evaluation data to the ranks, or let one rank evaluate",
                tuple(one.witness(f"rank {one.rank} evaluated {some(one.ids or ())}") for one in readings),
            )
            return


def _without_loader(trace: Trace) -> Iterator[Finding]:
    """Scripts that make their batches by hand: what the ranks' models were given (told at full detail)."""
    ranks = [
        [event for event in rank.of(Forward) if event.grad and event.training and event.inputs] for rank in trace.ranks
    ]
    length = min(map(len, ranks))
    given = {tuple(event.inputs for event in one[:length]) for one in ranks}
    if len(given) > 1 or len(set(*given)) < 2:
        return
    yield Finding(
        CODE,
        Severity.ERROR,
        f"all ranks gave their models the same inputs in each of {length} training forwards",
        "every rank trains on samples that no other rank reads",
        "let each rank take its own part of a batch, or seed the draw of its batches by seed + rank",
        tuple(
            Witness(f"rank {rank.rank}: inputs {one[0].inputs}", rank.rank, one[0].step, Place.parse(one[0].at))
            for rank, one in zip(trace.ranks, ranks, strict=True)
        ),
    )


def _finding(source: Source, one: Reading, other: Reading, text: str) -> Finding:
    loader = one.loader
    knows = (
        f"its {loader.sampler} takes itself for rank {loader.sampler_rank} of {loader.sampler_ranks}"
        if loader.sampler_ranks is not None
        else f"its {loader.sampler or 'dataset'} knows nothing of ranks"
    )
    return Finding(
        CODE,
        Severity.ERROR,
        f"in pass {one.begin.number} over {source.name} ranks {one.rank} and {other.rank} read {text}; {knows}",
        "in a pass every rank reads samples that no other rank reads",
        "give the loader a sampler that knows the ranks, such as DistributedSampler(data), and call its set_epoch"
        if one.ids is not None
        else "let the iterable dataset skip what belongs to other ranks: every num_ranks-th sample, from the rank on",
        (
            one.witness(f"rank {one.rank} read {_count(one)} samples"),
            other.witness(f"rank {other.rank} read {_count(other)} samples"),
        ),
    )


def _count(reading: Reading) -> int:
    return len(reading.ids) if reading.ids is not None else len(reading.rows)
