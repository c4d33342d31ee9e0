"""Which samples a resumed run reads, beside those that the unbroken run reads from there on."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from lockstep.proof.align import samples, views
from lockstep.proof.restart import trained_on
from lockstep.trace.events import Batch, Pass, SetEpoch
from lockstep.trace.trace import RankTrace, Trace

Kind = Literal["same", "shuffled", "again", "lost", "none"]


@dataclass(frozen=True)
class Reread:
    """kind: `same`: the unbroken run's samples. `shuffled`: a whole pass in another order. `again`: in the order of an
    earlier pass. `lost`: samples of the pass are read twice, or not at all. `none`: no loader was read."""

    kind: Kind
    text: str = ""
    next_step: str = ""


@dataclass(frozen=True)
class Point:
    """Where a run stands in its data before a step: the pass, and batches of it that were read."""

    stream: str
    number: int
    batch: int


def point(rank: RankTrace, steps: int) -> Point | None:
    """The first training batch of the step after so many steps."""
    for event in rank.of(Batch):
        if event.step >= steps and event.grad:
            return Point(event.stream, event.number, event.batch)
    return None


def begun(rank: RankTrace, steps: int) -> tuple[tuple[str, int, int], ...]:
    """(stream, whole passes, batches of the pass that goes on) before the step after so many steps."""
    here = point(rank, steps)
    passes: dict[str, int] = {}
    for event in rank.events:
        if isinstance(event, Batch) and event.step >= steps and event.grad:
            break
        if isinstance(event, Pass):
            passes[event.stream] = event.number + 1
    if here is not None:
        passes[here.stream] = here.number
    return tuple((stream, count, 0) for stream, count in passes.items())


def reread(unbroken: Trace, resumed: Trace, steps: int) -> Reread:
    """What the resumed run reads, whose first step is the unbroken run's after `steps`."""
    here = point(unbroken.ranks[0], steps)
    start = point(resumed.ranks[0], 0)
    if here is None or start is None:
        return Reread("none")
    wanted = [_step_samples(rank, steps) for rank in unbroken.ranks]
    seen = [_step_samples(rank, 0, len(one)) for rank, one in zip(resumed.ranks, wanted, strict=True)]
    if wanted == seen:
        return Reread("same")
    before = [_read(rank, here.stream, here.number, steps) for rank in unbroken.ranks]
    whole = [_read(rank, here.stream, here.number) for rank in unbroken.ranks]
    mine = [_trained(rank, start.stream, start.number, len(wanted[0])) for rank in resumed.ranks]
    earlier = _as_earlier(unbroken, mine, here)
    if earlier is not None:
        return _again(unbroken, resumed, here, start, earlier)
    had, all_of_it, got = (Counter(one for rank in ranks for one in rank) for ranks in (before, whole, mine))
    twice = sum(((had + got) - all_of_it).values())
    lost = sum((all_of_it - (had + got)).values())
    if not had and (not twice or not lost):
        return Reread("shuffled", f"it reads pass {here.number} in another order than that, each sample once")
    text = (
        f"of pass {here.number} ({sum(all_of_it.values())} samples, {sum(had.values())} read before the save) "
        f"it reads {twice} samples again and leaves {lost} out"
    )
    next_step = "save the position within the epoch and the order, and skip what has been read; or save at its end"
    return Reread("lost", text, next_step)


def _step_samples(rank: RankTrace, number: int, count: int | None = None) -> list[object]:
    steps = views(rank)
    if number >= len(steps):
        return []
    return [samples(batch) for batch in trained_on(steps[number], count)]


def _read(rank: RankTrace, stream: str, number: int, before: int | None = None) -> list[object]:
    """Samples of a pass in order of reading; only those that were read before a step."""
    found: list[object] = []
    for event in rank.of(Batch):
        if event.stream == stream and event.number == number and (before is None or event.step < before):
            found += samples(event)
    return found


def _trained(rank: RankTrace, stream: str, number: int, first: int) -> list[object]:
    """Samples of a pass without those of batches that were only passed over before the first step."""
    passed = {id(batch) for batch in trained_on(views(rank)[0])[:-first]} if first else set()
    found: list[object] = []
    for event in rank.of(Batch):
        if event.stream == stream and event.number == number and id(event) not in passed:
            found += samples(event)
    return found


def _as_earlier(unbroken: Trace, mine: list[list[object]], here: Point) -> int | None:
    """The pass of the unbroken run, of those that had begun, that the resumed run's first pass is, by its order."""
    for number in range(here.number + (here.batch > 0)):
        other = [_read(rank, here.stream, number) for rank in unbroken.ranks]
        pairs = list(zip(mine, other, strict=True))
        if all(len(a) > 1 and b and a[: len(b)] == b[: len(a)] for a, b in pairs):
            return number
    return None


def _again(unbroken: Trace, resumed: Trace, here: Point, start: Point, earlier: int) -> Reread:
    if earlier == here.number:
        text = f"it begins pass {here.number} anew, of which {here.batch} batches a rank had been read before the save"
        next_step = "save the position within the epoch and skip what has been read, or save at the end of an epoch"
        return Reread("lost", text, next_step)
    told = [_epoch(unbroken.ranks[0], here.stream, here.number), _epoch(resumed.ranks[0], start.stream, start.number)]
    text = f"it reads pass {earlier} again, in the same order, where the unbroken run reads pass {here.number}"
    if told[0] is not None and told[1] is not None and told[0] != told[1]:
        text += f": set_epoch({told[1]}) instead of set_epoch({told[0]})"
        return Reread("again", text, "save the epoch, and begin the loop over epochs and set_epoch with it")
    next_step = "save and restore the random state that the order is drawn from, or draw it from seed and epoch"
    return Reread("again", text, next_step)


def _epoch(rank: RankTrace, stream: str, number: int) -> int | None:
    """What the sampler had been told last when a pass began."""
    last = None
    for event in rank.events:
        if isinstance(event, SetEpoch):
            last = event.value
        if isinstance(event, Pass) and event.stream == stream and event.number == number:
            return event.epoch if event.epoch is not None else last
    return None
