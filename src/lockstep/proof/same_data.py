"""Whether the program trains on the samples that the original trains on: no fed take shows it, since it is fed."""

from collections.abc import Iterator

from lockstep.core.finding import Finding, Place, Severity, Witness
from lockstep.core.proof import Share
from lockstep.proof.partition import shares
from lockstep.trace.events import Batch, Loader
from lockstep.trace.trace import RankTrace, Trace

_WITHOUT_REPLACEMENT = ("RandomSampler", "SequentialSampler", "DistributedSampler")
_MUST = "the program trains on the samples that the original trains on"
_NEXT = "make the same split from the same dataset, with a seed that both share"


def other_data(reference: Trace, distributed: Trace, batch: int) -> Iterator[Finding]:
    """What differs between the training data of the original and of the program.

    Args:
        batch: samples a step over all ranks; so many may be left over at the end of a pass.
    """
    one, mine = _training(reference.ranks[0]), _training(distributed.ranks[0])
    if one is None or mine is None or (one.root, one.root_length) != (mine.root, mine.root_length):
        return
    if one.split and mine.split and one.length == mine.length and one.split != mine.split:
        yield _finding(
            f"the subset of {mine.root} that it trains on is another one of {mine.length} samples", one, mine
        )
        return
    whole = next((share for share in shares(distributed) if share.stream == mine.stream and share.complete), None)
    if whole is None or not one.ids or one.length is None or one.sampler not in _WITHOUT_REPLACEMENT:
        return
    read, different = sum(len(ids) for ids in whole.ids), _different(whole)
    if read > different + distributed.num_ranks:  # drawn with replacement, or read more than once: other rules judge it
        return
    if not one.length - max(batch, distributed.num_ranks) <= different <= one.length:
        yield _finding(f"it trains on {different} samples of {mine.root}, the original on {one.length}", one, mine)


def _training(rank: RankTrace) -> Loader | None:
    """The loader that the first training batch came from."""
    first = next((batch for batch in rank.of(Batch) if batch.grad), None)
    return next((event for event in rank.of(Loader) if first is not None and event.loader == first.loader), None)


def _different(share: Share) -> int:
    return len({index for ids in share.ids for index in ids})


def _finding(seen: str, one: Loader, mine: Loader) -> Finding:
    sides = (
        Witness(f"a loader over {mine.dataset} of {mine.length} samples", 0, place=Place.parse(mine.at)),
        Witness(f"the original: a loader over {one.dataset} of {one.length} samples", place=Place.parse(one.at)),
    )
    return Finding("LS415", Severity.ERROR, seen, _MUST, _NEXT, sides)
