"""A run's own batches as a record that a feed can yield again, rank by rank."""

from pathlib import Path

import torch

from lockstep.trace.events import Batch
from lockstep.trace.feed import Kept, pass_file
from lockstep.trace.trace import Trace


def write_record(trace: Trace, folder: Path) -> None:
    """Below `folder`, one record for each rank. Passes whose batches have no sample indices are left out."""
    for rank in trace.ranks:
        mine = folder / str(rank.rank)
        mine.mkdir(parents=True, exist_ok=True)
        passes: dict[tuple[str, int], list[Kept]] = {}
        for batch in rank.of(Batch):
            if batch.ids is not None:
                passes.setdefault((batch.stream, batch.number), []).append(Kept(batch.ids, None))
        torch.save(list(dict.fromkeys(stream for stream, _ in passes)), mine / "streams.pt")
        for (stream, number), kept in passes.items():
            torch.save(kept, pass_file(mine, stream, number))
