"""What a watched run of a step's micro-batches found on one rank: plain values that travel between ranks."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The operation that first made a value that is not finite.

    Attributes:
        direction: whether the value is an output of forward, or a gradient of backward.
        module: name of the innermost module that ran the operation, "" for the model itself, None for the loss.
        kind: class of that module.
        operation: name of the operation, such as `linear` or `log`.
        value: `nan`, `inf` or `-inf`.
        dtype: number type of that value, such as `float16`.
        largest: largest absolute value that went into it; for a gradient, of what came in from behind.
        line: the user's line of the forward, as `file.py:12: code`; empty where no frame is the user's.
        given: what went in besides that is not finite itself, such as the -inf of a mask; empty for nothing.
        feeds: modules that made what went into the operation.
    """

    direction: Literal["forward", "backward"]
    module: str | None
    kind: str
    operation: str
    value: str
    dtype: str
    largest: float
    line: str
    given: str = ""
    feeds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """One rank's watched run.

    Attributes:
        finding: the first one, None where every operation was sound.
        loss: sum of the scaled loss over the micro-batches, as the backward started from it.
        finite: whether the losses and all gradients were.
        micro: index of the micro-batch of the finding, or of the first loss that is not finite.
        batch_holds: what the batches themselves hold, such as `image holds nan`; empty where they are finite.
        weights: parameters and buffers that were not finite before the step ran.
        error: why the step could not be run again; empty where it was.
    """

    finding: Finding | None = None
    loss: float = 0.0
    finite: bool = True
    micro: int = 0
    batch_holds: str = ""
    weights: tuple[str, ...] = ()
    error: str = ""
