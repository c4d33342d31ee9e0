"""Every rank draws noise of its own.

What must hold
    Dropout, augmentation and latent noise come from states of the random generators that differ from rank to rank.

Why
    One seed on all ranks makes the start the same, which is right, and everything that is random in training too:
    the same units are dropped on all ranks, the first images of all ranks are flipped or not together, a generator
    draws the same latent vectors. The global batch then has N times fewer different draws than the same batch on
    one device. The workers of a loader get their seeds from their rank's generator, so they repeat each other as
    well.

How it shows
    It does not. The training is a little noisier, and a gradient is not the mean over independent samples.

Fix
    After the model is built, wrapped, and the data are split, seed every rank by itself: `torch.manual_seed(seed + 1 +
    rank)`, and `numpy` and `random` alike where they are used. What ranks share, such as a split, is drawn from a
    generator of its own.

Example
        torch.manual_seed(seed)
        model = DistributedDataParallel(Net())
        torch.manual_seed(seed + 1 + rank)
"""

from collections.abc import Iterator
from itertools import combinations

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.data import data_parallel
from lockstep.rules.evidence.noise import Draw, draws
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS208", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100", "LS201")

_WORDS = {
    "samples": "while samples are made",
    "workers": "in the workers, while samples are made",
    "noise": "between a batch and the forward",
    "model": "in the forward (dropout and the like)",
}


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Compare the states from which ranks draw at the same moment."""
    if not data_parallel(trace):
        return
    ranks = [{draw.key: draw for draw in draws(rank)} for rank in trace.ranks]
    told: set[tuple[str, str]] = set()
    for one, other in combinations(range(len(ranks)), 2):
        groups: dict[tuple[str, str], list[tuple[Draw, Draw]]] = {}
        for key, draw in ranks[one].items():
            if key in ranks[other]:
                groups.setdefault((draw.source, draw.stream), []).append((draw, ranks[other][key]))
        for group, pairs in groups.items():
            same = [(mine, theirs) for mine, theirs in pairs if mine.before == theirs.before]
            if group not in told and 2 * len(same) > len(pairs):
                told.add(group)
                yield _finding(one, other, group[0], same, len(pairs))


def _finding(one: int, other: int, source: str, same: list[tuple[Draw, Draw]], all_pairs: int) -> Finding:
    libs = " and ".join(sorted({draw.lib for draw, _ in same}))
    return Finding(
        CODE,
        Severity.DEVIATION,
        f"ranks {one} and {other} draw the same random numbers from {libs} {_WORDS[source]}: in {len(same)} of "
        f"{all_pairs} draws that were compared",
        "every rank draws noise of its own",
        "seed each rank by itself once the model is built and wrapped: torch.manual_seed(seed + 1 + rank), numpy and "
        "random alike",
        tuple(
            Witness(f"rank {rank} draws from {draw.lib} in state {draw.before}", rank, draw.step, Place.parse(draw.at))
            for rank, draw in zip((one, other), same[0], strict=True)
        ),
    )
