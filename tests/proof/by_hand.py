"""Takes made by hand for the lemmas: the steps of each rank, with small values beside the trace."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.core.outcome import Exit
from lockstep.launch.local import Outcome
from lockstep.launch.verdict import Verdict
from lockstep.proof.takes import Take
from lockstep.trace.events import Backward, Batch, End, Event, Module, Optimizer, Start, Step
from lockstep.trace.sink import tensor_file
from lockstep.trace.trace import RankTrace, Trace

HERE = "/home/me/train.py"
STREAM = "Data/8/8#0"
Arrays = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Made:
    """One step. grads, start, after: {key: values}. outputs: {module: values}. ids, rows: of its one batch."""

    grads: Arrays = field(default_factory=dict)
    after: Arrays = field(default_factory=dict)
    start: Arrays = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    lr: tuple[float, ...] = (0.1,)
    loss: float | None = None
    ids: tuple[int, ...] | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    optimizer: int = 0
    more: tuple[Event, ...] = ()


def take(
    folder: Path,
    *ranks: Sequence[Made],
    names: Mapping[str, str] | None = None,
    how: str = "returned",
    **more: Any,
) -> Take:
    """A take of ranks that made these steps. names: {key: model's name for it}. how: each rank ended."""
    folder.mkdir(parents=True)
    made = (_rank(folder, rank, steps, names, len(ranks)) for rank, steps in enumerate(ranks))
    trace = Trace(tuple(replace(one, events=(*one.events, End(how=how))) for one in made))
    return Take(folder.name, trace, folder, Outcome(Verdict("", Exit.DONE), (), ()), **more)


class _Kept(BytesIO):
    """Values one after the other, as a rank keeps them."""

    def put(self, value: Any) -> int:
        position = self.tell()
        np.save(self, value)
        return position


def digest(value: Any) -> str:
    return hashlib.sha256(np.asarray(value).tobytes()).hexdigest()[:8]


def _rank(folder: Path, rank: int, steps: Sequence[Made], names: Mapping[str, str] | None, num_ranks: int) -> RankTrace:
    file = _Kept()
    events: list[Event] = [Start(script=HERE, rank=rank, num_ranks=num_ranks)]
    if names is not None:
        events.append(Optimizer(optimizer=0, kind="SGD", keys=tuple(names), names=tuple(names.values())))
    for number, one in enumerate(steps):
        mine = sum(1 for earlier in steps[:number] if earlier.optimizer == one.optimizer)
        events += [*_before(file, one, number), _step(file, one, number, mine)]
    tensor_file(folder, rank).write_bytes(file.getvalue())
    return RankTrace(rank, tuple(events))


def _before(file: _Kept, one: Made, number: int) -> list[Event]:
    events: list[Event] = []
    if one.ids is not None or one.rows:
        size = len(one.ids) if one.ids is not None else None
        rows = one.rows
        events.append(
            Batch(loader=0, stream=STREAM, number=0, batch=number, ids=one.ids, size=size, rows=rows, at=f"{HERE}:30")
        )
    for name, value in one.outputs.items():
        place = file.put(np.asarray(value))
        events.append(Module(model=0, name=name, call=0, digest=digest(value), tensor=place, at=f"{HERE}:40"))
    events += one.more
    if one.loss is not None:
        events.append(Backward(loss=one.loss, at=f"{HERE}:50"))
    return events


def _step(file: _Kept, one: Made, number: int, mine: int) -> Step:
    def kept(arrays: Arrays) -> dict[str, int]:
        return {key: file.put(np.asarray(value, dtype=np.float64)) for key, value in arrays.items()}

    def digests(arrays: Arrays) -> dict[str, str]:
        return {key: digest(value) for key, value in arrays.items()}

    return Step(
        optimizer=one.optimizer,
        number=mine,
        step=number,
        lr=one.lr,
        before=digests(one.start),
        grads=digests(one.grads),
        after=digests(one.after),
        start_tensors=kept(one.start),
        grad_tensors=kept(one.grads),
        param_tensors=kept(one.after),
        at=f"{HERE}:60",
    )
