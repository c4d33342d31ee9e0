"""One backward for each forward of the wrapper.

What must hold
    Between two forwards of the wrapper there is one backward, and between two backwards a forward.

Why
    A forward of the wrapper prepares one averaging, and the next backward uses it up. A second backward over the same
    forward (`retain_graph=True`), or the second of two backwards after two forwards, adds the gradient of this rank's
    own share to what has been averaged.

How it shows
    Nothing stops where each loss reaches all parameters: the gradients just differ. Where the first loss reaches only
    some, torch raises "Expected to mark a variable ready only once".

Fix
    Add the losses and call `backward` once: `(first + second).backward()`. Or call the wrapper before each backward.

Example
    twins/one_backward_per_forward: two losses of one forward, each with its own backward.
"""

from collections.abc import Iterable, Iterator, Sequence

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.gradients import Unequal
from lockstep.rules.evidence.reducer import Before, Cause, before_steps
from lockstep.rules.evidence.telling import told, witness
from lockstep.trace.events import Raised
from lockstep.trace.trace import Trace

CODE = "LS104"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ("LS100", "LS118")

_TWICE = "mark a variable ready only once"
_LEAD = "two backward passes follow one preparation by the wrapper, and only the first is averaged"
_MUST = "each backward has a forward of the wrapper of its own"
_NEXT = "add the losses and call backward once, or call the wrapper before each backward"


def dynamic(trace: Trace) -> Iterable[Finding]:
    """The first step whose gradients differ because of a second backward, or the exception that one led to."""
    found = list(told(trace, Cause.AGAIN, CODE, _say))
    return found or _refused(trace)


def _say(first: Unequal) -> tuple[str, str, str, Sequence[Witness]]:
    return _LEAD, _MUST, _NEXT, _clues(first.witness, first.witness.held[first.keys[0]].wrapped)


def _clues(one: Before, model: int) -> Sequence[Witness]:
    local = one.local[model]
    return (
        witness("this second backward adds the gradient of its rank alone", one.rank, local.backward),
        witness("this backward is averaged", one.rank, local.earlier),
    )


def _refused(trace: Trace) -> Iterator[Finding]:
    for rank in trace.ranks:
        for one in before_steps(rank):
            again = [model for model, local in one.local.items() if local.cause is Cause.AGAIN]
            if again and isinstance(one.event, Raised) and _TWICE in one.event.error:
                seen = f"{_LEAD}: torch refused the second in step {one.event.step}."
                yield Finding(CODE, Severity.ERROR, seen, _MUST, _NEXT, tuple(_clues(one, again[0])))
                return
