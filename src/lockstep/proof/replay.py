"""A run's own batches as a record that a feed can yield again, rank by rank."""

from pathlib import Path

from lockstep.trace.events import Batch
from lockstep.trace.kept import Kept, keep, pass_file, streams_file
from lockstep.trace.trace import Trace


def write_record(trace: Trace, folder: Path) -> None:
    """Below `folder`, one record for each rank. Passes whose batches have no sample indices are left out."""
    for rank in trace.ranks:
        mine = folder / str(rank.rank)
        mine.mkdir(parents=True, exist_ok=True)
        passes: dict[tuple[str, int], list[Kept]] = {}
        for batch in rank.of(Batch):
            if batch.ids is not None:
                passes.setdefault((batch.stream, batch.number), []).append(Kept(batch.keys or batch.ids, None))
        streams_file(mine).touch()
        for stream in dict.fromkeys(stream for stream, _ in passes):
            keep(streams_file(mine), stream)
        for (stream, number), batches in passes.items():
            for one in batches:
                keep(pass_file(mine, stream, number), one)
