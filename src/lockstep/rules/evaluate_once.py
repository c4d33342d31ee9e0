"""An evaluation counts every sample once.

What must hold
    Where ranks share an evaluation and reduce its sums, no sample is in two ranks' shares.

Why
    `DistributedSampler` makes all shares equally long by repeating samples. In training that is harmless. In an
    evaluation the repeated samples count twice, so a metric depends on the number of ranks.

How it shows
    Accuracy on eight ranks differs from accuracy on one in the third digit, with the same weights. 63 samples, and a
    count of 64.

Fix
    Do not pad: give rank r the samples r, r + N, r + 2 N, ..., without `DistributedSampler`. Shares may differ in
    length by one, which is right when sums and counts are reduced. Call the inner module, not the wrapper, since
    ranks may have different numbers of batches. Where outputs are gathered instead, cut them to the length of the
    data.

Example
        sampler = DistributedSampler(held_out, shuffle=False)             # 63 samples are 64
        own = Subset(held_out, range(rank, len(held_out), num_ranks))
"""

from collections import Counter
from collections.abc import Iterator

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.data import Reading, Source, some, sources
from lockstep.rules.evidence.results import SUMS, put_together
from lockstep.rules.evidence.samples import Contents, Relation, relation
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS203", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100", "LS202", "LS206", "LS207", "LS401")


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Count the samples of each evaluation over shares."""
    for source in sources(trace):
        if source.training or not source.one_split:
            continue
        for readings in source.passes():
            twice = _twice(source, readings)
            if twice:
                finding = _finding(trace, source, readings, twice)
                if finding is not None:
                    yield finding
                    break


def _twice(source: Source, readings: tuple[Reading, ...]) -> Counter[int]:
    """Samples that more than one rank has read, where ranks read shares; empty where one read everything."""
    length = source.loaders[0].length
    if length is None or not all(one.end is not None and one.evaluated and one.ids for one in readings):
        return Counter()
    shares = [set(one.ids or ()) for one in readings]
    if any(len(share) >= length for share in shares) or len(set(map(frozenset, shares))) == 1:
        return Counter()
    first = Contents.of(source.readings[0])
    if any(relation(first, Contents.of(other)) is Relation.OTHER for other in source.readings[1:]):
        return Counter()
    counts = Counter(index for share in shares for index in share)
    return Counter({index: count for index, count in counts.items() if count > 1})


def _finding(trace: Trace, source: Source, readings: tuple[Reading, ...], twice: Counter[int]) -> Finding | None:
    told = put_together(trace.ranks[0], readings[0])
    if not told:  # nothing is put together: the share itself is the result, another rule's matter
        return None
    summed = next((one for one in told if one.op in SUMS), None)
    read = sum(len(set(one.ids or ())) for one in readings)
    call = summed or told[0]
    return Finding(
        CODE,
        Severity.ERROR if summed is not None else Severity.NOTE,
        f"an evaluation of {source.loaders[0].length} samples counts {read}: {len(twice)} of them twice (the samples "
        f"{some(set(twice))}), because the sampler repeats samples to make shares equally long",
        "an evaluation counts every sample once"
        if summed is not None
        else "what is gathered is cut to the length of the data before it is used",
        "deal out the samples without padding (rank r of N takes r, r + N, ...) and reduce sums and counts",
        (
            *(one.witness(f"rank {one.rank} evaluated {len(one.ids or ())} samples") for one in readings),
            Witness(f"{call.op} puts them together", 0, call.step, Place.parse(call.at)),
        ),
    )
