"""Traces made by hand for the rules about gradients: a wrapped model of two layers, and steps on it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from lockstep.trace.events import (
    Backward,
    Collective,
    End,
    Event,
    Forward,
    Group,
    Model,
    Optimizer,
    Start,
    Step,
    Wrap,
)
from lockstep.trace.trace import RankTrace, Trace

HERE = "/home/me/train.py"
NAMES = ("body.weight", "body.bias", "head.weight", "head.bias")
KEYS = ("0/0", "0/1", "0/2", "0/3")
NUMEL = (12, 4, 8, 2)
Rank = Callable[[int], Iterable[Event]]


def run(rank: Rank, num_ranks: int = 2, group: bool = True, how: str = "returned") -> Trace:
    """What `rank` says of each rank, between Start, Group and End."""
    return Trace(
        tuple(RankTrace(one, tuple(_whole(rank(one), one, num_ranks, group, how))) for one in range(num_ranks))
    )


def _whole(events: Iterable[Event], rank: int, num_ranks: int, group: bool, how: str) -> Iterable[Event]:
    start = Start(script=HERE, launch="torchrun", rank=rank, num_ranks=num_ranks)
    joined = [Group(what="init", backend="gloo", rank=rank, ranks=tuple(range(num_ranks)))] if group else []
    return chain([start], joined, events, [End(how=how)])


def optimizer(
    number: int = 0, model: int = 0, names: Sequence[str] = NAMES, wrapped: int = 0, **more: object
) -> Optimizer:
    """An optimizer over the parameters of one model; `more` replaces whole columns."""
    count = len(names)
    told = Optimizer(
        optimizer=number,
        kind="SGD",
        keys=KEYS[:count],
        names=tuple(f"{model}:{name}" if name else "" for name in names),
        numel=NUMEL[:count],
        wrapped=(wrapped,) * count,
        trainable=(True,) * count,
        frozen_at_wrap=(False,) * count,
        dtype_at_wrap=("float32" if wrapped >= 0 else "",) * count,
        dtype=("float32",) * count,
        at=f"{HERE}:50",
    )
    return replace(told, **more)  # type: ignore[arg-type]


def model(number: int = 0, names: Sequence[str] = NAMES) -> Model:
    return Model(model=number, kind="Net", names=tuple(names))


def wrap(number: int = 0, group_size: int = 2, **more: object) -> Wrap:
    return Wrap(model=number, kind="ddp", group_size=group_size, at=f"{HERE}:20", **more)  # type: ignore[arg-type]


def forward(sync: bool = True, number: int = 0, via: str = "wrapper", grad: bool = True) -> Forward:
    return Forward(model=number, via=via, sync=sync, grad=grad, at=f"{HERE}:30")


def inner(number: int = 0, grad: bool = True) -> Forward:
    return forward(number=number, via="inner", grad=grad)


def backward(retain: bool = False, flag: bool = True, line: int = 40) -> Backward:
    return Backward(loss=1.0, retain=retain, flags={"0": flag}, at=f"{HERE}:{line}")


def step(
    number: int = 0,
    rank: int = 0,
    own: Sequence[int] = (),
    missing: Sequence[int] = (),
    optimizer: int = 0,
    count: int = 4,
    before: str = "",
) -> Step:
    """A step. own: indices of parameters with a gradient of this rank's own. missing: of those without one. before:
    digest of all parameters before it, "" where it was not taken; after it they are the rank's own if a gradient is."""
    graded = [index for index in range(count) if index not in missing]
    after = f"{number}:{rank if own else 'same'}"
    return Step(
        optimizer=optimizer,
        number=number,
        step=number,
        lr=(0.1,),
        before=dict.fromkeys(KEYS[:count], before) if before else {},
        after=dict.fromkeys(KEYS[:count], after),
        grads={KEYS[index]: f"{number}:{rank if index in own else 'all'}" for index in graded},
        missing=tuple(KEYS[index] for index in missing),
        at=f"{HERE}:50",
    )


def reduced(numel: int, op: str = "all_reduce") -> Collective:
    return Collective(number=0, op=op, shape=(numel,), dtype="float32", ranks=(0, 1), at=f"{HERE}:45")


ALL = (0, 1, 2, 3)
