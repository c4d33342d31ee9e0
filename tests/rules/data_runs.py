"""Traces made by hand for the rules of SPLIT: loaders, and passes over them."""

from collections.abc import Sequence
from typing import Any

from lockstep.trace.events import (
    Backward,
    Batch,
    Event,
    Forward,
    Loader,
    Pass,
    PassEnd,
    RandomState,
    SetEpoch,
    Step,
)

HERE = "/home/me/train.py"


def loader(number: int = 0, rank: int = 0, **fields: Any) -> Loader:
    """Of 16 samples, dealt out by a DistributedSampler to two ranks in batches of 4."""
    given = {
        "stream": f"Points/16/16#{number}",
        "dataset": "Points",
        "root": "Points",
        "root_length": 16,
        "length": 16,
        "batch_size": 4,
        "sampler": "DistributedSampler",
        "sampler_ranks": 2,
        "sampler_rank": rank,
        "shuffle": True,
        "at": f"{HERE}:{10 + number}",
        **fields,
    }
    return Loader(loader=number, **given)


def plain(number: int = 0, **fields: Any) -> Loader:
    """A loader with shuffle=True and nothing else."""
    return loader(number, **{"sampler": "RandomSampler", "sampler_ranks": None, "sampler_rank": None, **fields})


def stream(number: int = 0, **fields: Any) -> Loader:
    """A loader of an iterable dataset."""
    none = {"length": None, "root_length": None, "sampler_ranks": None, "sampler_rank": None, "shuffle": None}
    return loader(number, **{"sampler": "", "ids": False, **none, "stream": f"Stream/None/None#{number}", **fields})


def reading(
    of: Loader,
    ids: Sequence[int],
    number: int = 0,
    *,
    train: bool = True,
    ended: bool = True,
    epoch: int | None = None,
    batch: int = 4,
    content: str = "",
    noisy: bool = False,
    joined: bool = False,
) -> list[Event]:
    """One pass. content: what tells the samples of this rank from those of others; without it no rows are told."""
    begin = Pass(loader=of.loader, stream=of.stream, number=number, epoch=epoch, grad=train, joined=joined, at=HERE)
    events: list[Event] = [begin]
    count = 0
    for count, start in enumerate(range(0, len(ids), batch), 1):
        some = ids[start : start + batch]
        events.append(
            Batch(
                loader=of.loader,
                stream=of.stream,
                number=number,
                batch=count - 1,
                ids=tuple(some) if of.ids else None,
                size=len(some),
                rows=_rows(some, content, f"{number}" if noisy else "") if content or not of.ids else {},
                grad=train,
            )
        )
        events += trained() if train else [Forward(model=0, via="inner", training=False, grad=False)]
    if ended:
        events.append(PassEnd(loader=of.loader, stream=of.stream, number=number, batches=count))
    return events


def _rows(ids: Sequence[int], content: str, noise: str) -> dict[str, tuple[str, ...]]:
    """An image, which may be noisy, and a label of three."""
    images = tuple(f"{content}-{index}{noise}" for index in ids)
    return {"0": images, "1": tuple(f"{(index + (content == 'b')) % 3}" for index in ids)}


def trained() -> list[Event]:
    """A step of a wrapped model."""
    return [Forward(model=0, via="wrapper"), Backward(loss=0.5), Step(optimizer=0, number=0)]


def stepped(events: Sequence[Event]) -> list[Event]:
    """The same events with the number of steps that were complete."""
    done, counted = 0, []
    for event in events:
        counted.append(type(event)(**{**vars(event), "step": done}))
        done += isinstance(event, Step)
    return counted


def told(value: int, of: int | None = 0) -> SetEpoch:
    return SetEpoch(sampler="DistributedSampler", value=value, loader=of, at=f"{HERE}:20")


def state(when: str, torch: object = "", numpy: object = "", random: object = "") -> RandomState:
    return RandomState(when=when, torch=str(torch), numpy=str(numpy), random=str(random), at=f"{HERE}:30")


FIRST, SECOND = (8, 2, 14, 5, 0, 11, 6, 3), (1, 9, 15, 4, 12, 7, 10, 13)
"""Two shares of 16 samples."""
THIRD, FOURTH = (2, 1, 15, 0, 4, 6, 13, 9), (3, 5, 7, 8, 10, 11, 12, 14)
"""Two shares of another epoch."""
EVERY = FIRST + SECOND
