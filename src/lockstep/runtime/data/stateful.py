"""Streams that keep a state of their own, so that a resumed run goes on there and passes over nothing."""

import copy
import time
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lockstep.core.errors import explain
from lockstep.runtime.data.broken import Broken, unreadable
from lockstep.runtime.readable import unreadable_part

SHARE = 0.05
"""Part of a reader's time that may go into taking states. One that costs more is taken at fewer steps."""


@runtime_checkable
class Stateful(Protocol):
    """An iterable data set whose reading can be gone on with, as those of torchdata and Hugging Face."""

    def state_dict(self) -> dict[str, Any]:
        """Where the reading stands, after the items that were handed out."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Stand there: the next iterator hands out the item after them."""
        ...


@dataclass(frozen=True)
class StreamState:
    """A stream's own state between two steps: plain values for a checkpoint.

    Attributes:
        epoch: the epoch that is read.
        position: items of it that the stream had handed out.
        state: what its `state_dict()` gave.
    """

    epoch: int
    position: int
    state: Any

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {**asdict(self), "state": self.state}


class Stated(NamedTuple):
    """A batch on its way from the reader, and the stream's state after it. A tuple, so that its batch is pinned."""

    batch: Any
    after: StreamState


class StateTaker:
    """Takes a stream's state between two steps, unless that would cost more than `SHARE` of the time."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def take(self, dataset: Any, epoch: int, position: int) -> StreamState | Broken | None:
        """The state after `position` items; None where it is not the time, or the data set has none."""
        began = time.perf_counter()
        if not isinstance(dataset, Stateful) or began < self._not_before:
            return None
        # A worker hands it on a moment later, and the data set may go on with the same objects meanwhile.
        try:
            values: Any = copy.deepcopy(dataset.state_dict())
        except Exception as error:
            return unreadable(error, "train", epoch, position)
        if values is None:
            return None  # its items are counted, as those of a data set without a state
        state = StreamState(epoch, position, values)
        found = not_plain(state) or state
        ended = time.perf_counter()
        self._not_before = ended + (ended - began) / SHARE
        return found


def not_plain(state: StreamState) -> Broken | None:
    """An error where a checkpoint with this state could be written and not be read again."""
    odd = unreadable_part(state.state, "state")
    if not odd:
        return None
    seen = f"state_dict() of the training stream cannot be kept in a checkpoint ({odd})"
    must = "numbers, text, lists, dicts and tensors, which torch.load(weights_only=True) reads"
    return Broken(explain(seen, must, "train_data()", "turn other objects into these in state_dict()"), misuse=True)
