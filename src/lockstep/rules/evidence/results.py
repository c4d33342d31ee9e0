"""What becomes of an evaluation over several ranks."""

from lockstep.rules.evidence.data import Reading
from lockstep.trace.events import Backward, Batch, Collective, Step
from lockstep.trace.trace import RankTrace

SUMS = frozenset({"all_reduce", "reduce", "all_reduce_coalesced", "reduce_scatter", "reduce_scatter_tensor"})
"""Collectives that add up."""


def put_together(rank: RankTrace, reading: Reading) -> list[Collective]:
    """The collectives by which a script may put results together: from the first batch of a pass until it trains on."""
    found = []
    began = False
    for event in rank.events[reading.first :]:
        if isinstance(event, Batch):
            began = True
        elif isinstance(event, Backward | Step) and began:
            break
        elif isinstance(event, Collective) and event.op not in ("barrier", "monitored_barrier", "broadcast"):
            found.append(event)
    return found
