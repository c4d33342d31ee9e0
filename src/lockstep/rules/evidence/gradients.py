"""Which gradients differ between ranks at an optimizer step, and why: one cause for each parameter."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.rules.evidence.averaging import parameters_averaged
from lockstep.rules.evidence.reducer import Before, Cause, Held, before_steps
from lockstep.trace.events import Group, Raised, Step
from lockstep.trace.trace import Trace

UNFINISHED = ("Expected to have finished reduction", "Your training graph has changed")
"""How the wrapper complains, at the forward after the step, that a parameter got no gradient."""


@dataclass(frozen=True)
class Unequal:
    """Gradients of one step that differ between ranks for one cause.

    keys: of these parameters in the optimizer. before: how things stood on each rank. witness: the one on which the
    cause shows.
    """

    cause: Cause
    keys: tuple[str, ...]
    before: tuple[Before, ...]
    witness: Before

    @property
    def steps(self) -> tuple[Step, ...]:
        """The step, on each rank."""
        return tuple(one.stepped for one in self.before)


def has_group(trace: Trace) -> bool:
    """Whether any rank ever joined a process group."""
    return any(event.what == "init" for rank in trace.each(Group) for event in rank)


def complaints(trace: Trace) -> Iterator[tuple[Before, Raised]]:
    """Each time that a wrapper said that a parameter got no gradient."""
    for rank in trace.ranks:
        for one in before_steps(rank):
            if isinstance(one.event, Raised) and any(text in one.event.error for text in UNFINISHED):
                yield one, one.event


def unequal_gradients(trace: Trace) -> Iterator[Unequal]:
    """Every step that all ranks made and in which gradients differ, once for each cause.

    Nothing is said where no process group exists, where each rank has parameters of its own (shards, stages), or where
    the ranks average their parameters afterwards instead.
    """
    if trace.num_ranks < 2 or not has_group(trace):
        return
    unfinished, averaged = next(complaints(trace), None) is not None, dict[int, bool]()
    for before in _aligned(trace):
        keys, optimizer = _unequal_keys(before), before[0].optimizer
        if not keys:
            continue
        if optimizer.optimizer not in averaged:
            averaged[optimizer.optimizer] = parameters_averaged(trace, optimizer, keys)
        if averaged[optimizer.optimizer]:
            continue
        for (cause, index), mine in _causes(before, keys, unfinished).items():
            yield Unequal(cause, tuple(mine), before, before[index])


def _aligned(trace: Trace) -> Iterator[tuple[Before, ...]]:
    ranks = [
        {
            (event.optimizer, event.number): before
            for before in before_steps(rank)
            if isinstance(event := before.event, Step) and event.optimizer in before.optimizers
        }
        for rank in trace.ranks
    ]
    for key, first in ranks[0].items():
        if all(key in rank for rank in ranks):
            yield (first, *(rank[key] for rank in ranks[1:]))


def _unequal_keys(before: Sequence[Before]) -> list[str]:
    steps = [one.stepped for one in before]
    # Without `after` the step was recorded without digests.
    if not all(step.after for step in steps) or all(step.grads == steps[0].grads for step in steps):
        return []
    held = [one.held for one in before]
    return [
        key
        for key, mine in held[0].items()
        if len({step.grads.get(key) for step in steps}) > 1
        and all(key in one and one[key].name == mine.name and one[key].numel == mine.numel for one in held)
        and _replicated(before, mine)
    ]


def _replicated(before: Sequence[Before], held: Held) -> bool:
    """Whether the parameter is meant to be the same on all these ranks."""
    wrap = before[0].wraps.get(held.wrapped)
    return not held.sharded and (wrap is None or (wrap.kind == "ddp" and wrap.group_size in (1, len(before))))


def _causes(before: Sequence[Before], keys: Sequence[str], unfinished: bool) -> dict[tuple[Cause, int], list[str]]:
    """{(cause, index of the rank on which it shows): keys}."""
    found: dict[tuple[Cause, int], list[str]] = defaultdict(list)
    of_model: dict[int, tuple[Cause, int]] = {}
    for key in keys:
        held = before[0].held[key]
        cause = _cause_of(before, key)
        if cause is None and held.wrapped not in of_model:
            of_model[held.wrapped] = _cause_in(before, held.wrapped, unfinished)
        found[cause or of_model[held.wrapped]].append(key)
    return found


def _cause_of(before: Sequence[Before], key: str) -> tuple[Cause, int] | None:
    """What is the matter with this parameter alone; None if nothing is."""
    held, wraps = before[0].held[key], before[0].wraps
    wrap = wraps.get(held.wrapped)
    if (wrap is None and all(one.group_size < 2 for one in wraps.values())) or (wrap and wrap.group_size < 2):
        return Cause.UNREDUCED, 0
    if wrap is None:
        return (Cause.CHANGED if held.model in wraps else Cause.UNWRAPPED), 0
    for index, one in enumerate(before):
        if one.held[key].changed:
            return Cause.CHANGED, index
        local = one.local.get(held.wrapped)
        called = any(call.model == held.wrapped and held.parameter in call.names for call in one.calls)
        if called and (local is None or local.cause is Cause.AGAIN):
            return Cause.LOCAL_CALL, index
    return None


def _cause_in(before: Sequence[Before], model: int, unfinished: bool) -> tuple[Cause, int]:
    """What is the matter with this wrapped model as a whole."""
    local: dict[Cause, int] = {}
    for index, one in enumerate(before):
        if model in one.local:
            local.setdefault(one.local[model].cause, index)
    for cause in (Cause.BYPASSED, Cause.NOT_SYNCED):
        if cause in local:
            return cause, local[cause]
    for index, one in enumerate(before):
        if replaced(one, model):
            return Cause.CHANGED, index
        if without_gradient(one, model):
            return Cause.UNUSED, index
    if unfinished:
        return Cause.UNUSED, 0
    return (Cause.AGAIN, local[Cause.AGAIN]) if Cause.AGAIN in local else (Cause.UNKNOWN, 0)


def replaced(before: Before, model: int) -> list[str]:
    """Parameters that came into, or went out of, this model after its wrap. The wrapper waits for those it knew."""
    return [
        f"{one.parameter} came" if one.wrapped < 0 else f"parameter {one.parameter} of the optimizer went"
        for optimizer in before.optimizers
        for one in before.held_by(optimizer).values()
        if (one.wrapped == model and not one.name) or (one.wrapped < 0 and one.model == model)
    ]


def without_gradient(before: Before, model: int) -> list[str]:
    """Keys of parameters that this wrapper waited for in vain."""
    wrap = before.wraps[model]
    if wrap.find_unused or wrap.static_graph:
        return []
    held = before.held
    return [key for key in before.stepped.missing if key in held and held[key].expected_by == model]
