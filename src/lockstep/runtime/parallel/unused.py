"""Parameters that got no gradient on some rank: completed with zeros, named, never a hang.

DistributedDataParallel waits for every parameter of every rank. Where a branch leaves one out, its rank leaves
`backward` with the reduction unfinished and the others wait for ever; `find_unused_parameters=True` cures it by a walk
through the graph at every step. Here a rank looks after `backward` at what did not move, and feeds zeros for it in a
second backward: the reduction completes with the sum over the ranks that have a gradient, which is the right one.

A further parameter, the *lane*, takes part in no forward. It is fed last, with 1 where this rank left something out, so
that its reduced value tells every rank, without a collective of its own, whether any rank did.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lockstep.core.errors import RunError, explain
from lockstep.runtime.world import World

if TYPE_CHECKING:
    from lockstep.runtime.parallel.replica import Task


class Completion:
    """Completes the reduction of one wrapped task.

    Args:
        task: the wrapped module with its lane.
        world: the ranks.
        refuse: raise instead of completing (`find_unused=off`).
    """

    def __init__(self, task: "Task", world: World, refuse: bool) -> None:
        self.world, self.refuse = world, refuse
        self.lane = task.lane
        named = [(name, p) for name, p in task.model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.params: list[nn.Parameter] = [p for _, p in named]
        self.ones = torch.ones_like(self.lane)
        self.zeros = torch.zeros_like(self.lane)
        self.unused: frozenset[str] = frozenset()

    def marks(self) -> list[int]:
        """A number for each parameter that changes when its gradient is written."""
        return [-1 if p.grad is None else p.grad._version for p in self.params]

    def finish(self, before: list[int]) -> None:
        """Complete the reduction of the backward that ran since `before` was taken.

        Afterwards `unused` names what had no gradient on some rank; a parameter that had none on any rank has
        none now, as in a single process.
        """
        after = self.marks()
        left = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old == new]
        if left and self.refuse:
            raise RunError(_refusal([self.names[i] for i in left], self.world.rank))
        had = [mark != -1 for mark in after]
        roots = [self.params[i] for i in left]
        zeros: list[Tensor] = [torch.zeros_like(p) for p in roots]
        self.lane.grad = None
        torch.autograd.backward([*roots, self.lane], [*zeros, self.ones if left else self.zeros])
        self.unused = self._agree(had) if self._anyone_left_out() else frozenset()

    def _anyone_left_out(self) -> bool:
        signal = self.lane.grad
        assert signal is not None
        return float(signal) > 0

    def _agree(self, had: list[bool]) -> frozenset[str]:
        """Drop what no rank used; return the names of what some rank did not."""
        ranks_with = self.world.sum(torch.tensor(had, dtype=torch.int32))
        for param, count in zip(self.params, ranks_with.tolist(), strict=True):
            if count == 0:
                param.grad = None
        missing = (ranks_with < self.world.num_ranks).tolist()
        return frozenset(name for name, absent in zip(self.names, missing, strict=True) if absent)


def _refusal(names: list[str], rank: int) -> str:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    seen = f"rank {rank}: no gradient for {shown}"
    must = "with parallel.find_unused=off every parameter gets a gradient in every step on every rank"
    return explain(seen, must, next_step="use them in every forward, remove them, or set parallel.find_unused=auto")
