"""Runs of ranks, built by hand for the rules about state: a few events each, in the order in which they would come."""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.trace.events import (
    Backward,
    Batch,
    Buffers,
    Collective,
    End,
    Event,
    Forward,
    Model,
    Optimizer,
    Start,
    Step,
    Wrap,
)
from lockstep.trace.trace import RankTrace, Trace

NAMES = ("0.weight", "0.bias")
RETURNED = End(how="returned")
CRASHED = End(how="raised", error="ValueError: no", at="train.py:9")


def run(*ranks: Sequence[Event], cut: str = "") -> Trace:
    """A trace of these ranks; steps are counted and times given in the order of the events."""
    return Trace(tuple(RankTrace(rank, _counted(rank, events)) for rank, events in enumerate(ranks)), cut)


def _counted(rank: int, events: Sequence[Event]) -> tuple[Event, ...]:
    counted: list[Event] = [Start(script="train.py", rank=rank)]
    step = 0
    for at, event in enumerate(events):
        object.__setattr__(event, "step", step)
        object.__setattr__(event, "time", float(at))
        counted.append(event)
        step += isinstance(event, Step)
    return tuple(counted)


def model(number: int = 0, kind: str = "Net", **more: Any) -> Model:
    return Model(model=number, kind=kind, names=NAMES, at="train.py:3", **more)


def wrap(number: int = 0, **more: Any) -> Wrap:
    return Wrap(model=number, kind="ddp", group_size=2, at="train.py:4", **more)


def optimizer(number: int = 0, of: int = 0, names: Sequence[str] = NAMES, sizes: Sequence[int] = (8, 2)) -> Optimizer:
    keys = tuple(f"0/{index}" for index in range(len(names)))
    full = tuple(f"{of}:{name}" for name in names)
    return Optimizer(optimizer=number, kind="SGD", keys=keys, names=full, numel=tuple(sizes), at="train.py:5")


def step(
    number: int,
    after: str = "aa",
    *,
    before: str = "",
    grads: str = "gg",
    lr: Sequence[float] = (0.1,),
    of: int = 0,
    at: str = "train.py:8",
) -> Step:
    """A step of one optimizer over two parameters; `before` only where it is told."""
    return Step(
        optimizer=of,
        number=number,
        lr=tuple(lr),
        before=values(before) if before else {},
        after=values(after),
        grads=values(grads),
        at=at,
    )


def values(digest: str) -> Mapping[str, str]:
    return {"0/0": digest, "0/1": "same"}


def trained(number: int, after: str = "aa", **more: Any) -> list[Event]:
    """One whole step: batch, forward through the wrapper, backward, optimizer."""
    return [batch(number), forward(), Backward(at="train.py:7"), step(number, after, **more)]


def batch(number: int, ids: Sequence[int] = (0, 1), grad: bool = True, size: int = 2) -> Batch:
    return Batch(loader=0, stream="s", number=0, batch=number, ids=tuple(ids), size=size, grad=grad, at="train.py:6")


def forward(via: str = "wrapper", *, training: bool = True, grad: bool = True, at: str = "train.py:7") -> Forward:
    return Forward(model=0, via=via, training=training, grad=grad, at=at)


def evaluated(via: str, ids: Sequence[int] = (0, 1), at: str = "train.py:12") -> list[Event]:
    """A batch of an evaluation and its forward."""
    return [batch(0, ids, grad=False), forward(via, training=False, grad=False, at=at)]


def buffers(mean: str, when: str = "eval") -> Buffers:
    return Buffers(model=0, when=when, digests={"1.running_mean": mean, "1.count": "cc"}, at="train.py:12")


def call(number: int, op: str = "all_reduce", at: str = "train.py:10", **more: Any) -> Collective:
    reduce = "sum" if "reduce" in op else ""
    known: dict[str, Any] = {"dtype": "" if "barrier" in op else "float32", "reduce": reduce, "shape": ()}
    return Collective(**{**known, "number": number, "op": op, "at": at, **more})
