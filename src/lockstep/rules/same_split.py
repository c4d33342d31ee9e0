"""All ranks mean the same data.

What must hold
    Where a sampler deals out data to ranks, all ranks have the same samples in the same places, and as many. What one
    rank trains on is not what another evaluates.

Why
    A split that is drawn without a generator, an index list that is shuffled in a constructor, files listed from a set:
    each process gets its own. The sampler then deals out positions of different lists: samples are read twice or never,
    and what one rank holds out for validation, another trains on. The validation is then measured on training data.

How it shows
    Nothing fails while the lengths agree. The validation looks better than it should.

Fix
    Draw splits from a generator with a fixed seed, the same on every rank; sort what comes from a set or a folder.

Example
        training, held_out = random_split(data, [0.8, 0.2])              # every process draws its own
        training, held_out = random_split(data, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
"""

from collections.abc import Iterator
from itertools import combinations, permutations

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.data import Reading, Source, overlap, some, sources
from lockstep.rules.evidence.samples import Contents, Relation, moved, relation
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS207", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Compare what the ranks take for the same data."""
    found = sources(trace)
    apart = [source for source in found if _apart(source)]
    leak = _leak(found)
    for source in apart[:1]:
        yield _finding(source, _apart(source), leak)
    if leak is not None and not apart:
        yield _leaking(leak)


_Leak = tuple[Source, Source, int, int, set[int]]


def _apart(source: Source) -> str:
    """How the ranks' data differ although a sampler deals them out, in words; "" if they agree."""
    if not source.rank_aware:
        return ""
    for one, other in combinations(source.readings, 2):
        a, b = one[0].loader, other[0].loader
        both = len(overlap(_all(one), _all(other)))
        if a.split and b.split and a.split != b.split:
            if both >= len(source.readings):  # else each rank has a part of its own
                return f"of {a.length} and {b.length} samples, chosen differently; {both} that both read are the same"
            continue
        if a.length != b.length:
            return f"of {a.length} samples on rank {a.sampler_rank} and {b.length} on rank {b.sampler_rank}"
        mine, theirs = Contents.of(one), Contents.of(other)
        if relation(mine, theirs) is Relation.OTHER and moved(mine, theirs):
            return f"of {a.length} samples in different places: an index is one sample here and another there"
    return ""


def _all(passes: tuple[Reading, ...]) -> tuple[int, ...]:
    """All indices that a rank has read."""
    return tuple(index for one in passes for index in one.ids or ())


def _leak(found: tuple[Source, ...]) -> _Leak | None:
    """(training, evaluation, rank of each, samples): what one rank trains on and another evaluates.

    Only where ranks differ in their splits, and each rank by itself keeps the two apart.
    """
    for training in found:
        for held_out in found:
            if not _split_of_one_root(training, held_out) or (training.one_split and held_out.one_split):
                continue
            trained = [_all(passes) for passes in training.readings]
            judged = [_all(passes) for passes in held_out.readings]
            if any(overlap(a, b) for a, b in zip(trained, judged, strict=True)):
                continue
            for one, other in permutations(range(len(trained)), 2):
                both = overlap(trained[one], judged[other])
                if both:
                    return training, held_out, one, other, both
    return None


def _split_of_one_root(training: Source, held_out: Source) -> bool:
    a, b = training.loaders[0], held_out.loaders[0]
    same = (a.root, a.root_length) == (b.root, b.root_length)
    return training.training and not held_out.training and same and bool(a.split) and bool(b.split)


def _finding(source: Source, apart: str, leak: _Leak | None) -> Finding:
    seen = f"the ranks' samplers deal out data {apart}"
    if leak is not None:
        _, _, one, other, both = leak
        seen += f". Rank {one} trains on {len(both)} samples that rank {other} evaluates ({some(both)})"
    return Finding(
        CODE,
        Severity.ERROR,
        seen,
        "all ranks have the same samples in the same places before a sampler deals them out",
        "draw the split, or the order of the list, from a generator with a fixed seed that does not contain the rank",
        tuple(
            one[0].witness(f"rank {one[0].rank}: {one[0].loader.length} samples, reads {some(one[0].ids or ())}")
            for one in source.readings
        ),
    )


def _leaking(leak: _Leak) -> Finding:
    training, held_out, one, other, both = leak
    return Finding(
        CODE,
        Severity.ERROR,
        f"rank {one} trains on {len(both)} samples that rank {other} evaluates ({some(both)})",
        "what one rank trains on is held out on no rank",
        "draw the split from a generator with a fixed seed that does not contain the rank",
        (
            training.readings[one][0].witness(f"rank {one} trains on {some(both)}"),
            held_out.readings[other][0].witness(f"rank {other} evaluates {some(both)}"),
        ),
    )
