"""Which random streams are drawn from while a model is trained, and from which states."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.trace.events import Batch, Loader, Pass, RandomState
from lockstep.trace.trace import RankTrace

LIBS = ("torch", "numpy", "random")

_EAGER = frozenset({"DistributedSampler", "RandomSampler", "SequentialSampler", "WeightedRandomSampler"})
"""Samplers that draw nothing from a global generator after the first batch of a pass."""


@dataclass(frozen=True)
class Draw:
    """Numbers were drawn from a stream.

    Attributes:
        key: what it was for, and where in the training: draws of ranks with equal keys belong together.
        lib: `torch`, `numpy`, `random`.
        source: `samples` (a dataset, in the process of the rank), `workers` (the first worker of a loader), `noise`
            (between a batch and the forward), `model` (between the forward and the backward pass).
        stream: whose samples, "" for what is not about samples. before: digest of the state before.
        step: optimizer step. at: the user's line.
    """

    key: tuple[object, ...]
    lib: str
    source: str
    stream: str
    before: str
    step: int
    at: str


def draws(rank: RankTrace) -> Iterator[Draw]:
    """All draws of training that ranks should make by themselves.

    What is left out, since ranks may well share it: what begins a pass (permutations, the seeds of workers), and what
    the script draws from numpy or random outside of its datasets (sizes of images, which layers to skip).
    """
    loaders: dict[int, Loader] = {}
    before: RandomState | None = None
    batch: Batch | None = None
    seen: Counter[tuple[object, ...]] = Counter()
    for event in rank.events:
        if isinstance(event, Loader):
            loaders[event.loader] = event
        elif isinstance(event, Pass):
            before = None
        elif isinstance(event, Batch):
            batch = event
            if event.grad and event.loader in loaders and loaders[event.loader].ids:  # a stream may draw its order
                yield from _of_workers(event, seen)
        elif isinstance(event, RandomState):
            source = _source(before, event, batch, loaders)
            if before is not None and source:
                seen[source, event.step] += 1
                key = (source, event.step, seen[source, event.step])
                yield from _drawn(key, source, batch.stream if batch is not None else "", before, event)
            before = event


def _source(before: RandomState | None, after: RandomState, batch: Batch | None, loaders: dict[int, Loader]) -> str:
    """What was between two moments; "" for what is not looked at."""
    moments = (before.when if before is not None else "", after.when)
    if moments == ("fetch", "batch") and batch is not None and batch.batch > 0:
        loader = loaders.get(batch.loader)
        return "samples" if loader is not None and loader.sampler in _EAGER else ""
    return {("batch", "forward"): "noise", ("forward", "backward"): "model"}.get(moments, "")


def _drawn(
    key: tuple[object, ...], source: str, stream: str, before: RandomState, after: RandomState
) -> Iterator[Draw]:
    for lib in LIBS if source == "samples" else ("torch",):
        start, end = getattr(before, lib), getattr(after, lib)
        if start and end and start != end:
            whose = stream if source == "samples" else ""
            yield Draw((*key, lib), lib, source, whose, start, before.step, after.at)


def _of_workers(batch: Batch, seen: Counter[tuple[object, ...]]) -> Iterator[Draw]:
    for lib, state in batch.noise.items():
        key = ("workers", batch.stream, batch.number, lib)
        if not seen[key]:
            seen[key] += 1
            yield Draw(key, lib, "workers", batch.stream, state, batch.step, batch.at)
