"""The partition lemma (SPLIT): who reads what, from the recorded sample indices."""

from lockstep.core.finding import Finding
from lockstep.core.proof import Rung, Share, Status
from lockstep.proof.align import samples
from lockstep.rules.evidence.data import Reading, readings
from lockstep.rules.evidence.samples import Contents, Relation, relation
from lockstep.trace.events import Batch, Loader, PassEnd
from lockstep.trace.trace import RankTrace, Trace


def partition(trace: Trace, findings: tuple[Finding, ...], serious: tuple[Finding, ...]) -> Rung:
    """The rung: what the rules of SPLIT found, or what the passes show."""
    name = "partition"
    if serious:
        said = f"{len(serious)} finding{'s' * (len(serious) > 1)}; the first: {serious[0].code}, {serious[0].seen}"
        return Rung(name, Status.FAIL, said, findings=findings)
    passes = shares(trace)
    training = [share for share in passes if _is_training(trace, share.stream)]
    if not passes:
        said = "batches come from no DataLoader: whether ranks read different samples cannot be seen"
        return Rung(name, Status.ABSTAIN, said, findings=findings)
    if not training:
        return Rung(name, Status.ABSTAIN, "no training pass over a loader was seen", findings=findings)
    whole_passes = [share for share in training if share.complete]
    if not whole_passes and trace.cut:
        said = "the run was ended in its first pass, so whether every sample is read cannot be seen: give it less data"
        return Rung(name, Status.ABSTAIN, said, findings=findings)
    first = whole_passes[0] if whole_passes else training[0]
    each = " + ".join(str(len(ids)) for ids in first.ids)
    length = f" of {first.length}" if first.length is not None else ""
    whole = ", read to its end," if first.complete else ""
    said = (
        f"{len(training)} training pass{'es' * (len(training) > 1)}; in the first{whole} ranks read {each}{length} "
        f"samples, {_overlap(first) or 'none'} on more than one rank"
    )
    if len(training) == 1:
        said += "; with one pass only, a new order each epoch was not seen"
    return Rung(name, Status.PASS, said, findings=findings)


def made_anew(trace: Trace, again: Trace) -> bool:
    """Whether a rank has other samples under the same indices in another run of the same program."""
    if not (trace.ranks and again.ranks):
        return False
    first, second = _contents(trace.ranks[0]), _contents(again.ranks[0])
    return any(relation(first[stream], second[stream]) is Relation.OTHER for stream in first.keys() & second.keys())


def _contents(rank: RankTrace) -> dict[str, Contents]:
    found: dict[str, list[Reading]] = {}
    for one in readings(rank):
        found.setdefault(one.loader.stream, []).append(one)
    return {stream: Contents.of(passes) for stream, passes in found.items()}


def _overlap(share: Share) -> int:
    seen: set[int] = set()
    twice: set[int] = set()
    for ids in share.ids:
        twice |= seen & set(ids)
        seen |= set(ids)
    return len(twice)


def _is_training(trace: Trace, stream: str) -> bool:
    return any(batch.grad for rank in trace.ranks for batch in rank.of(Batch) if batch.stream == stream)


def shares(trace: Trace) -> tuple[Share, ...]:
    """Every pass of every stream with the samples of each rank; content stands for indices where there are none."""
    read: dict[tuple[str, int], list[list[int]]] = {}
    numbers: dict[object, int] = {}
    for place, rank in enumerate(trace.ranks):
        for batch in rank.of(Batch):
            mine = read.setdefault((batch.stream, batch.number), [[] for _ in trace.ranks])[place]
            if batch.ids is not None:
                mine.extend(batch.ids)
            else:
                mine.extend(numbers.setdefault(one, len(numbers)) for one in samples(batch))
    lengths = {event.stream: event.root_length for rank in trace.ranks for event in rank.of(Loader)}
    ended = [{(event.stream, event.number) for event in rank.of(PassEnd)} for rank in trace.ranks]
    found = []
    for key, ranks in read.items():
        # A loop that counts its batches need not ask the loader for the end.
        every = len({index for ids in ranks for index in ids}) == lengths.get(key[0])
        whole = every or all(key in one for one in ended)
        found.append(Share(key[0], key[1], lengths.get(key[0]), tuple(tuple(ids) for ids in ranks), whole))
    return tuple(found)
