"""Traces made by hand for the rules of ONCE and SCALE: a list of events a rank, and the pieces that they share."""

from collections.abc import Iterable, Sequence

from lockstep.trace.events import (
    Backward,
    Batch,
    Collective,
    End,
    Event,
    File,
    Forward,
    Output,
    Pass,
    PassEnd,
    Start,
    Step,
)
from lockstep.trace.trace import RankTrace, Trace

HERE = "/home/me/train.py"


def trace(*ranks: Sequence[Event], ranks_per_node: int | None = None, cut: str = "", how: str = "returned") -> Trace:
    """One list of events a rank; Start and End are put around."""
    num_ranks = len(ranks)
    size = ranks_per_node or num_ranks
    return Trace(
        tuple(
            RankTrace(rank, (_start(rank, num_ranks, size), *events, End(how=how))) for rank, events in enumerate(ranks)
        ),
        cut,
    )


def _start(rank: int, num_ranks: int, size: int) -> Start:
    where = {"rank": rank, "num_ranks": num_ranks, "rank_of_node": rank % size, "ranks_per_node": size}
    return Start(script=HERE, cwd="/home/me", launch="torchrun", **where)


def steps(count: int = 1) -> list[Event]:
    """Optimizer steps of a wrapped model."""
    return [
        event for _ in range(count) for event in (Backward(loss=0.5, flags={"0": True}), Step(optimizer=0, number=0))
    ]


def barrier() -> Event:
    return Collective(number=0, op="barrier", ranks=(), at=f"{HERE}:90")


def file(op: str, name: str = "model.pt", line: int = 10, **more: object) -> Event:
    fields = {"path": f"/home/me/{name}", **more}
    return File(op=op, at=f"{HERE}:{line}", **fields)  # type: ignore[arg-type]


def moved(source: str, target: str, line: int = 11) -> Event:
    return File(op="rename", path=f"/home/me/{source}", target=f"/home/me/{target}", at=f"{HERE}:{line}")


def said(text: str, what: str = "print", line: int = 20, count: int = 1) -> Event:
    return Output(what=what, text=text, count=count, at=f"{HERE}:{line}")


def reduced(
    given: Iterable[float], got: Iterable[float] = (), op: str = "all_reduce", line: int = 30, **more: object
) -> Event:
    values, result = tuple(given), tuple(got)
    fields = {"dtype": "float32", "reduce": "sum", "shape": (len(values),), "ranks": (0, 1), **more}
    return Collective(number=0, op=op, given=values, got=result, at=f"{HERE}:{line}", **fields)  # type: ignore[arg-type]


def evaluation(ids: Sequence[int], number: int = 0, training: bool = False, grad: bool = False) -> list[Event]:
    """One pass over some samples of a test set, in batches of four, with a forward each."""
    own = {"loader": 1, "stream": "Test/16#0", "number": number}
    events: list[Event] = [Pass(grad=grad, at=f"{HERE}:40", **own)]  # type: ignore[arg-type]
    batches = [tuple(ids[begin : begin + 4]) for begin in range(0, len(ids), 4)]
    for place, batch in enumerate(batches):
        events.append(Batch(batch=place, ids=batch, size=len(batch), grad=grad, **own))  # type: ignore[arg-type]
        events.append(Forward(model=0, via="inner", training=training, grad=grad))
    return [*events, PassEnd(batches=len(batches), **own)]  # type: ignore[arg-type]
