"""Within a pass a rank reads a sample once.

What must hold
    The workers of a loader read different samples of a stream.

Why
    A loader with two workers has two copies of an iterable dataset. Each iterates its copy from the beginning to
    the end: every sample comes twice, in every epoch. A dataset with indices has no such problem, since the loader
    deals out indices.

How it shows
    Epochs are longer by the number of workers. Changing `num_workers` changes the training.

Fix
    Split by rank and by worker: there are `num_ranks * num_workers` readers, and each takes every so-many-th sample.

Example
        worker = get_worker_info()
        first = rank * worker.num_workers + worker.id
        for sample in islice(stream, first, None, num_ranks * worker.num_workers):
            yield sample
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.data import Reading, readings, rows_of
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS210", Law.SPLIT, 1
AFTER: tuple[str, ...] = ("LS100",)

_DIFFERENT = 4  # samples that differ; fewer may be chance


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Look for streams that every worker has read."""
    told: set[int] = set()
    for reading in chain.from_iterable(readings(rank) for rank in trace.ranks):
        if reading.loader.loader in told or reading.loader.workers < 2 or reading.loader.ids:
            continue
        if _read_by_all(reading):
            told.add(reading.loader.loader)
            yield _finding(reading)


def _read_by_all(reading: Reading) -> bool:
    """Whether each sample came once from every worker."""
    rows, workers = reading.rows, reading.loader.workers
    counts = Counter(rows)
    if len(counts) < _DIFFERENT:
        return False
    if reading.end is not None:
        return all(count % workers == 0 for count in counts.values())
    # Workers take turns: before the end, their batches come in groups of equal content.
    whole = len(reading.batches) - len(reading.batches) % workers
    groups = [reading.batches[first : first + workers] for first in range(0, whole, workers)]
    return len(groups) > 1 and all(len({tuple(rows_of(batch)) for batch in group}) == 1 for group in groups)


def _finding(reading: Reading) -> Finding:
    counts, workers = Counter(reading.rows), reading.loader.workers
    return Finding(
        CODE,
        Severity.ERROR,
        f"in pass {reading.begin.number} over {reading.loader.stream} rank {reading.rank} read {len(reading.rows)} "
        f"samples, of which {len(counts)} are different: each of the {workers} workers reads them all",
        "every worker of every rank reads samples of its own",
        "split the stream by rank and worker: with get_worker_info(), reader rank * num_workers + id takes every "
        "(num_ranks * num_workers)-th sample",
        (reading.witness(f"rank {reading.rank}: {reading.loader.dataset} with {workers} workers"),),
    )
