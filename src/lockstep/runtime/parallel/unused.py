"""Parameters that got no gradient on some rank: completed with zeros, named, never a hang.

DistributedDataParallel waits for every parameter of every rank. Where a branch leaves one out, its rank leaves
`backward` with the reduction unfinished and the others wait for ever; `find_unused_parameters=True` cures it by a walk
through the graph at every step. Here a rank looks after `backward` at what it did not reach, and feeds zeros for it in
a second backward: the reduction completes with the sum over the ranks that have a gradient, which is the right one.

The lane is fed in the same second backward: its flag tells every rank, without a collective of its own, whether any
rank has no gradient for something, and by another one whether any rank was asked to stop.
"""

from functools import partial

import torch
from torch import Tensor, nn

from lockstep.core.errors import RunError, explain
from lockstep.runtime.parallel.lane import decode, encode
from lockstep.runtime.world import World


class Completion:
    """Completes the reduction of one wrapped model.

    Args:
        model: the model.
        lane: (lane.SIZE,) the parameter of the wrapped task that no forward uses.
        world: the ranks.
        refuse: raise instead of completing (`find_unused=off`).
    """

    def __init__(self, model: nn.Module, lane: nn.Parameter, world: World, refuse: bool) -> None:
        self.world, self.refuse, self.lane = world, refuse, lane
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.params: list[nn.Parameter] = [p for _, p in named]
        self.unused: frozenset[str] = frozenset()
        self.stop = False
        # The wrapper counts a parameter when its node in the graph has run, even without a gradient; so do we.
        self._reached: set[int] = set()
        for i, param in enumerate(self.params):
            _node(param).register_hook(partial(_note, self._reached, i))

    def start(self) -> None:
        """Call before each backward."""
        self._reached.clear()

    def finish(self, count: int | Tensor = 0, stop: bool = False) -> int:
        """Complete the reduction after the last backward of a step.

        Afterwards `unused` names what had no gradient on some rank; a parameter that had none on any rank has
        none now, as in a single process. `stop` says whether any rank wants to stop; it is the same on every rank.

        Args:
            count: a whole number of this rank, below 2^36.
            stop: whether this rank wants to stop after this step.

        Returns:
            The sum of the counts over the ranks.
        """
        had = [p.grad is not None for p in self.params]
        if self.refuse and not all(had):
            absent = [name for name, one in zip(self.names, had, strict=True) if not one]
            raise RunError(_refusal(absent, self.world.rank))
        left = [p for i, p in enumerate(self.params) if i not in self._reached]
        self._feed(left, encode(not all(had), count, self.lane.detach(), stop))
        someone_has_none, total, self.stop = decode(self._lane_means(), self.world.num_ranks)
        self.unused = self._agree(had) if someone_has_none else frozenset()
        return total

    def _feed(self, left: list[nn.Parameter], signal: Tensor) -> None:
        """Zeros for what was left out, then the lane's signal."""
        frozen = [p for p in left if not p.requires_grad]  # since the wrap; the wrapper waits for it all the same
        for param in frozen:
            param.requires_grad_(True)
        self.lane.grad = None
        zeros: list[Tensor] = [torch.zeros_like(p) for p in left]
        torch.autograd.backward([*left, self.lane], [*zeros, signal])
        for param in frozen:
            param.requires_grad_(False)

    def _lane_means(self) -> list[float]:
        means = self.lane.grad
        assert means is not None
        return means.tolist()

    def _agree(self, had: list[bool]) -> frozenset[str]:
        """Drop what no rank used; return the names of what some rank did not."""
        ranks_with = self.world.sum(torch.tensor(had, dtype=torch.int32))
        for param, count in zip(self.params, ranks_with.tolist(), strict=True):
            if count == 0:
                param.grad = None
        missing = (ranks_with < self.world.num_ranks).tolist()
        return frozenset(name for name, absent in zip(self.names, missing, strict=True) if absent)


def _node(param: nn.Parameter) -> torch.autograd.graph.Node:
    """The node of the graph that accumulates a parameter's gradient; the wrapper keeps it alive."""
    step = param.view_as(param).grad_fn
    assert step is not None
    node = step.next_functions[0][0]
    assert node is not None
    return node


def _note(reached: set[int], index: int, *_: object) -> None:
    """Hook of a node. It holds no parameter, which would keep itself alive through its node."""
    reached.add(index)


def _refusal(names: list[str], rank: int) -> str:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    seen = f"rank {rank}: no gradient for {shown}"
    must = "with parallel.find_unused=off every parameter gets a gradient in every step on every rank"
    return explain(seen, must, next_step="use them in every forward, remove them, or set parallel.find_unused=auto")
