"""Whether ranks average their parameters after the step, as local SGD does, in place of their gradients before it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

from lockstep.trace.events import Collective, Forward, Optimizer, Step
from lockstep.trace.trace import RankTrace, Trace

_AVERAGING = ("all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor")


def parameters_averaged(trace: Trace, optimizer: Optimizer, keys: Sequence[str]) -> bool:
    """Whether a collective large enough for these parameters comes between a step and the next forward, and, where the
    trace knows the parameters before a step, whether they are then equal again."""
    numel = [size for key, size in zip(optimizer.keys, optimizer.numel, strict=False) if key in keys]
    sizes = set(_sizes_after_steps(trace.ranks[0]))
    if not numel or not (max(numel) in sizes or max(sizes, default=0) >= sum(numel)):
        return False
    equal_again = list(_equal_again(trace, optimizer.optimizer, keys))
    return any(equal_again) or not equal_again


def _sizes_after_steps(rank: RankTrace) -> Iterator[int]:
    after_step = False
    for event in rank.of(Step, Forward, Collective):
        if isinstance(event, Collective):
            if after_step and event.op in _AVERAGING:
                yield prod(event.shape)
        else:
            after_step = isinstance(event, Step)


def _equal_again(trace: Trace, optimizer: int, keys: Sequence[str]) -> Iterator[bool]:
    """For each step but the first: were these parameters equal before it, though they differed after the one before?"""
    ranks = [[step for step in rank if step.optimizer == optimizer] for rank in trace.each(Step)]
    steps = list(zip(*ranks, strict=False))
    for previous, now in pairwise(steps):
        if all(step.before for step in now):
            differed = any(len({step.after.get(key) for step in previous}) > 1 for key in keys)
            yield differed and all(len({step.before.get(key) for step in now}) == 1 for key in keys)
