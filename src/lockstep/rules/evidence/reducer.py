"""What DistributedDataParallel did with each rank's gradients before a step: a small model of its reducer.

A forward through the wrapper, with gradients on and outside no_sync, arms the reducer; the next backward is then
reduced, with all that has been accumulated, and disarms it. Every other backward stays on its rank.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from lockstep.trace.events import Backward, Event, Forward, GradCall, Optimizer, Raised, Step, Wrap
from lockstep.trace.trace import RankTrace


class Cause(StrEnum):
    """Why gradients differ between ranks."""

    BYPASSED = "the inner module was called"
    UNREDUCED = "nothing reduces them"
    NOT_SYNCED = "the last micro-batch was not synchronised"
    AGAIN = "a second backward after one forward"
    UNUSED = "a parameter got no gradient"
    CHANGED = "the model was changed after the wrap"
    UNWRAPPED = "no wrapper holds the parameter"
    LOCAL_CALL = "autograd.grad"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Local:
    """A backward whose gradients stayed on this rank. earlier: the forward that it belongs to; of `AGAIN` the backward
    that was reduced."""

    cause: Cause
    earlier: Forward | Backward
    backward: Backward


@dataclass(frozen=True)
class Held:
    """A parameter that an optimizer holds, as its event tells."""

    key: str
    name: str
    numel: int
    wrapped: int
    trainable: bool
    frozen_at_wrap: bool
    dtype_at_wrap: str
    dtype: str
    sharded: bool = False

    @property
    def model(self) -> int:
        """Number of the model that has it, -1 if none has."""
        return int(self.name.partition(":")[0]) if ":" in self.name else -1

    @property
    def parameter(self) -> str:
        """Its name in that model; its key where no model has it."""
        return self.name.partition(":")[2] or self.key

    @property
    def changed(self) -> bool:
        """Whether its wrapper does not know it as it is now: unfrozen or cast since."""
        return self.wrapped >= 0 and ((self.frozen_at_wrap and self.trainable) or self.dtype != self.dtype_at_wrap)

    @property
    def expected_by(self) -> int:
        """Number of the wrapped model that waits for its gradient, -1 if none does."""
        return self.wrapped if self.trainable and not self.frozen_at_wrap else -1


@dataclass(frozen=True)
class Before:
    """How things stood on one rank at an optimizer step, or when an exception passed.

    optimizers, wraps: the last word on each by then. local: {model: its last backward that was not reduced}. calls: of
    autograd.grad since the last step.
    """

    rank: int
    event: Step | Raised
    optimizers: Mapping[int, Optimizer]
    wraps: Mapping[int, Wrap]
    local: Mapping[int, Local]
    calls: tuple[GradCall, ...]

    @property
    def stepped(self) -> Step:
        """The step; only where it is one."""
        assert isinstance(self.event, Step)
        return self.event

    @property
    def optimizer(self) -> Optimizer:
        """The one that steps."""
        return self.optimizers[self.stepped.optimizer]

    @cached_property
    def held(self) -> dict[str, Held]:
        """What the optimizer that steps holds, by key."""
        return self.held_by(self.stepped.optimizer)

    def held_by(self, optimizer: int) -> dict[str, Held]:
        """What an optimizer holds, by key."""
        told = self.optimizers[optimizer]
        facts = (told.names, told.numel, told.wrapped, told.trainable, told.frozen_at_wrap, told.dtype_at_wrap)
        sharded = told.sharded or (False,) * len(told.keys)
        return {row[0]: Held(*row) for row in zip(told.keys, *facts, told.dtype, sharded, strict=True)}


class _Reducer:
    """Of one wrapped model."""

    def __init__(self) -> None:
        self.armed = False
        self.forwards: list[Forward] = []  # since the last backward
        self.again = False  # whether the graph of the last reduced backward may be walked once more
        self.reduced: Backward | None = None
        self.local: Local | None = None

    def forward(self, event: Forward) -> None:
        self.forwards.append(event)
        self.armed = self.armed or (event.via == "wrapper" and event.sync)

    def backward(self, event: Backward) -> None:
        forwards, self.forwards = self.forwards, []
        if self.armed:
            self.armed, self.local, self.reduced = False, None, event
            self.again = event.retain or len(forwards) > 1
        elif forwards:
            cause = Cause.NOT_SYNCED if forwards[-1].via == "wrapper" else Cause.BYPASSED
            self.local = Local(cause, forwards[-1], event)
        elif self.reduced is not None and self.again and self.local is None:
            self.local = Local(Cause.AGAIN, self.reduced, event)

    def stepped(self) -> None:
        self.local = self.reduced = None


class _Rank:
    """One rank as its events go by."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.reducers: dict[int, _Reducer] = {}
        self.wraps: dict[int, Wrap] = {}
        self.optimizers: dict[int, Optimizer] = {}
        self.calls: list[GradCall] = []

    def take(self, event: Event) -> None:
        match event:
            case Wrap():
                self.wraps[event.model], self.reducers[event.model] = event, _Reducer()
            case Forward() if event.grad and event.model in self.reducers:
                self.reducers[event.model].forward(event)
            case Backward():
                for reducer in self.reducers.values():
                    reducer.backward(event)
            case GradCall():
                self.calls.append(event)
            case Optimizer():
                self.optimizers[event.optimizer] = event

    def before(self, event: Step | Raised) -> Before:
        local = {model: one.local for model, one in self.reducers.items() if one.local is not None}
        return Before(self.rank, event, dict(self.optimizers), dict(self.wraps), local, tuple(self.calls))

    def stepped(self, event: Step) -> None:
        if event.optimizer in self.optimizers:
            self.calls.clear()
            for model in {*self.optimizers[event.optimizer].wrapped} & {*self.reducers}:
                self.reducers[model].stepped()


def before_steps(rank: RankTrace) -> Iterator[Before]:
    """How things stood at each step and each exception, in order."""
    state = _Rank(rank.rank)
    for event in rank.events:
        if isinstance(event, Step | Raised):
            yield state.before(event)
            if isinstance(event, Step):
                state.stepped(event)
        else:
            state.take(event)
