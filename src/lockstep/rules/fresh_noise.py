"""The noise of an epoch is not that of the epoch before.

What must hold
    Random numbers that are drawn in one pass over the training data go on from where the pass before has stopped.

Why
    A seed that is set at the start of each epoch, in the loop or in `worker_init_fn`, makes every epoch draw the same
    numbers: the same dropout masks in the same steps, the same augmentation for the same position.

How it shows
    It does not. The more epochs, the more the model gets used to the few masks that there are.

Fix
    Seed once, before the loop. Where the noise of an epoch has to be reproducible by itself, let the seed contain the
    epoch.

Example
        for epoch in range(epochs):
            torch.manual_seed(seed)                        # the same noise again
            torch.manual_seed(seed + epoch)
"""

from collections.abc import Iterator

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.data import Reading, readings
from lockstep.rules.evidence.noise import Draw, draws
from lockstep.trace.events import Seed
from lockstep.trace.trace import RankTrace, Trace

CODE, LAW, NEED = "LS211", Law.SPLIT, 1
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Compare what is drawn first in each pass, rank by rank."""
    for rank in trace.ranks:
        finding = _of_rank(rank)
        if finding is not None:  # all ranks run the same script
            yield finding
            return


def _of_rank(rank: RankTrace) -> Finding | None:
    passes = [one for one in readings(rank) if one.training and one.begin.grad]
    drawn = list(draws(rank))
    for whose in dict.fromkeys((one.loader.stream, one.loader.at) for one in passes):
        mine = [one for one in passes if (one.loader.stream, one.loader.at) == whose]
        firsts = [_firsts(drawn, one, after) for one, after in zip(mine, [*mine[1:], None], strict=True)]
        for source, lib in firsts[0] if len(firsts) > 1 else ():
            states = [first[source, lib].before for first in firsts if (source, lib) in first]
            if len(states) == len(firsts) and len(set(states)) == 1:
                return _finding(rank, mine, lib, [first[source, lib] for first in firsts])
    return None


def _firsts(drawn: list[Draw], one: Reading, after: Reading | None) -> dict[tuple[str, str], Draw]:
    """What is drawn first in a pass, by source and library."""
    found: dict[tuple[str, str], Draw] = {}
    end = after.begin.step if after is not None else None
    for draw in drawn:
        inside = draw.step >= one.begin.step and (end is None or draw.step < end)
        if inside and draw.stream in ("", one.loader.stream):
            found.setdefault((draw.source, draw.lib), draw)
    return found


def _finding(rank: RankTrace, passes: list[Reading], lib: str, drawn: list[Draw]) -> Finding:
    seed = next((event for event in rank.of(Seed) if event.lib == lib and event.step >= drawn[1].step), None)
    where = (Witness(f"{lib} is seeded with {seed.value}", rank.rank, seed.step, Place.parse(seed.at)),) if seed else ()
    return Finding(
        CODE,
        Severity.ERROR,
        f"in all {len(passes)} passes over {passes[0].loader.stream} rank {rank.rank} draws the same random numbers "
        f"from {lib}: its first draw in a pass is always from the state {drawn[0].before}",
        "the noise of an epoch goes on from the epoch before",
        "seed once, before the first epoch, or let the seed contain the epoch",
        (
            *where,
            *(
                Witness(f"a draw in pass {one.begin.number}", rank.rank, draw.step, Place.parse(draw.at))
                for one, draw in list(zip(passes, drawn, strict=True))[:2]
            ),
        ),
    )
