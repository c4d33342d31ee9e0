"""The optimizer holds the parameters that are trained.

What must hold
    The parameters of each optimizer are those of a model that is called, and each of them may get a gradient.

Why
    An optimizer keeps the parameters that it was given. Where the model is copied, or a part of it replaced, after the
    optimizer was built, the optimizer steps on what nobody computes with any more, and the new parameters are never
    stepped.

How it shows
    Nothing stops. After a `deepcopy` the loss does not fall at all; after a replaced head the rest is trained and the
    head stays as it was drawn. `.to`, `.double` and `convert_sync_batchnorm` keep the parameters and are no danger.

Fix
    Build the optimizer last: after every copy, replacement and wrap.

Example
    twins/live_optimizer: the head is replaced after the optimizer was built.
"""

from collections.abc import Iterable, Mapping

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.telling import witness
from lockstep.trace.events import Forward, Model, Optimizer, Step
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS109"
LAW = Law.SAME
NEED = 1
AFTER: tuple[str, ...] = ()

_SHOWN = 3


def dynamic(trace: Trace) -> Iterable[Finding]:
    """Optimizers with parameters that never get a gradient, while a model in training has some that none holds."""
    for rank in trace.ranks:
        found = list(_on(rank))
        if found:
            return found
    return ()


def _on(rank: RankTrace) -> Iterable[Finding]:
    optimizers = {event.optimizer: event for event in rank.of(Optimizer)}
    called = {event.model for event in rank.of(Forward) if event.grad}
    unheld = _unheld(rank, optimizers, called)
    for optimizer in optimizers.values():
        steps = [step for step in rank.of(Step) if step.optimizer == optimizer.optimizer]
        stale = _stale(optimizer, steps, called) if steps else []
        if not stale or not unheld:
            continue
        names = ", ".join(unheld[:_SHOWN]) + (f" and {len(unheld) - _SHOWN} more" if len(unheld) > _SHOWN else "")
        yield Finding(
            CODE,
            Severity.ERROR,
            f"{len(stale)} of {len(optimizer.keys)} parameters of the optimizer got no gradient in any of {len(steps)} "
            f"steps and are in no model that is called, while {names} of the model in training are in no optimizer.",
            "the optimizer holds the parameters of the model that is trained",
            "build the optimizer after the model was copied, changed and wrapped",
            (
                witness(f"steps on {len(stale)} parameters that nothing uses", rank.rank, steps[0], 0),
                *(witness("the model that is called", rank.rank, one) for one in _models(rank, unheld)),
            ),
        )


def _stale(optimizer: Optimizer, steps: list[Step], called: set[int]) -> list[str]:
    never = set(steps[0].missing).intersection(*(step.missing for step in steps))
    return [
        key
        for key, name, trainable in zip(optimizer.keys, optimizer.names, optimizer.trainable, strict=True)
        if key in never and trainable and not (name and int(name.partition(":")[0]) in called)
    ]


def _unheld(rank: RankTrace, optimizers: Mapping[int, Optimizer], called: set[int]) -> list[str]:
    held = {name for optimizer in optimizers.values() for name in optimizer.names}
    full = [f"{model.model}:{name}" for model in rank.of(Model) if model.model in called for name in model.names]
    return [name.partition(":")[2] for name in full if name not in held]


def _models(rank: RankTrace, unheld: list[str]) -> Iterable[Forward]:
    with_unheld = {model.model for model in rank.of(Model) if set(unheld) & set(model.names)}
    first = {event.model: event for event in reversed(list(rank.of(Forward))) if event.grad}
    return [event for model, event in first.items() if model in with_unheld][:1]
