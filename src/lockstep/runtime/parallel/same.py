"""The weights of all ranks are compared from time to time: they are equal to the bit, or something is broken.

One comparison looks at one element of every parameter, at a place that moves, and at a window of all elements laid end
to end, which moves on with every comparison. A parameter that differs as a whole is found by the next comparison; one
element that differs, be it by one bit, once the window has passed over it. Buffers are not compared: those that are
read in training come from rank 0 before each forward, and all of them before an evaluation and a save.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.core.errors import RunError, explain
from lockstep.core.words import ranks_text
from lockstep.runtime.world import World

WINDOW = {"cpu": 2**18, "cuda": 2**20}
"""Elements of one window, by device: about a millisecond."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_STRIDE = 0x1E3779B97F4A7C15


class SameCheck:
    """Compares the weights of all ranks every so many steps.

    Args:
        model: the unwrapped model.
        world: the ranks.
        every: optimizer steps between two comparisons; 0: never.
        start: steps done when the ranks were equal, since all had got their weights from rank 0.
    """

    def __init__(self, model: nn.Module, world: World, every: int, start: int) -> None:
        # A shard is on one rank only: there is nothing to compare it with.
        self.named = {name: param for name, param in model.named_parameters() if not isinstance(param, DTensor)}
        self.world, self.every = world, every
        self.window = WINDOW.get(world.device.type, WINDOW["cpu"])
        self.total = sum(_bits(param).numel() for param in self.named.values())
        self.num_windows = max(1, -(-self.total // self.window))
        self._compared = dict.fromkeys(range(self.num_windows), start)

    @torch.no_grad()
    def after(self, step: int) -> None:
        """Compare where it is time to. All ranks call it together.

        Args:
            step: optimizer steps done.

        Raises:
            RunError: on all ranks, where they differ: which, in what, and since when.
        """
        if not self.every or step % self.every or self.world.num_ranks == 1 or not self.total:
            return
        turn = step // self.every
        digests = self.world.gather(self.digest(turn))
        if len(set(digests)) > 1:
            raise RunError(self._explain(step, turn))
        self._compared[turn % self.num_windows] = step

    def digest(self, turn: int) -> int:
        """What one comparison looks at, as one number; any single element that differs changes it."""
        begin = turn % self.num_windows * self.window
        parts = []
        for bits in map(_bits, self.named.values()):
            length = bits.numel()
            if length:
                place = turn % length
                parts.append(bits[place : place + 1])
            low, high = max(begin, 0), min(begin + self.window, length)
            if low < high:
                parts.append(bits[low:high])
            begin -= length
        return number_of(parts)

    def _explain(self, step: int, turn: int) -> str:
        """Now that it is known, everything is compared, and the first parameter that differs is shown."""
        for name, param in self.named.items():
            numbers = self.world.gather(number_of([_bits(param)]))
            if len(set(numbers)) > 1:
                return self._told(step, turn, name, *_sides(numbers))
        return explain(f"step {step}: the ranks' digests of the weights differ, and the weights do not", _MUST)

    def _told(self, step: int, turn: int, name: str, right: list[int], wrong: list[int]) -> str:
        param = self.named[name].detach()
        other = param.clone()
        dist.broadcast(other, src=right[0])
        shown = self.world.gather(_difference(param, other))
        each = "; ".join(f"rank {rank}: {shown[rank]}" for rank in wrong)
        who = ranks_text(wrong) + (" differs" if len(wrong) == 1 else " differ") + f" from {ranks_text(right)}"
        if len(right) == len(wrong):
            who = f"{ranks_text(right)} and {ranks_text(wrong)} differ"
        window, last = turn % self.num_windows, max(self._compared.values())
        seen = f"step {step}: the weights are no longer the same on every rank: {who}. First in {name} ({each})"
        where = f"no comparison up to step {last} saw it"
        if self.num_windows > 1:
            where += f"; this part of the weights was last compared after step {self._compared[window]}"
        return explain(seen, _MUST, where, _NEXT)


_MUST = "equal to the bit: every rank starts from the same weights and takes the same gradients"
_NEXT = (
    "resume from a checkpoint of before; `lockstep verify` finds code that changes weights on one rank alone;"
    " if it comes back on one machine only, its memory or GPU is at fault (parallel.check_every=0 turns this off)"
)


def number_of(parts: Sequence[Tensor]) -> int:
    """A sum of whole numbers, each times an odd one of its place, modulo 2^64: the same in any order of adding.

    Args:
        parts: at least one, (n,) each, of any type of whole numbers.
    """
    kinds = dict.fromkeys(part.dtype for part in parts)
    joined = [torch.cat([part for part in parts if part.dtype == kind]).to(torch.int64) for kind in kinds]
    numbers = torch.cat(joined) if len(joined) > 1 else joined[0]
    places = torch.arange(numbers.numel(), device=numbers.device)
    return int(numbers.mul_(places.mul_(_STRIDE).bitwise_or_(1)).sum()) & (2**64 - 1)


def _bits(value: Tensor) -> Tensor:
    """The elements as whole numbers, end to end in the order of memory: a view where that is one of two layouts."""
    flat = _in_memory_order(value.detach())
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return flat.view(_INTEGERS[flat.element_size()])


def _sides(numbers: Sequence[int]) -> tuple[list[int], list[int]]:
    """The ranks of the largest group, taken for the right one, and all others; among two ranks nobody can tell."""
    common = max(numbers, key=lambda number: (numbers.count(number), -numbers.index(number)))
    right = [rank for rank, number in enumerate(numbers) if number == common]
    return right, [rank for rank in range(len(numbers)) if rank not in right]


def _difference(mine: Tensor, other: Tensor) -> str:
    apart = (_bits(mine) != _bits(other)).reshape(mine.numel(), -1).any(1).nonzero().flatten()
    if not apart.numel():
        return "none"
    first = int(apart[0])
    values = [_in_memory_order(value)[first].item() for value in (mine, other)]
    return f"{apart.numel()} of {mine.numel()} elements, the first is {values[0]:.9g} instead of {values[1]:.9g}"


def _in_memory_order(value: Tensor) -> Tensor:
    last = value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
    return (value.permute(0, 2, 3, 1) if last else value).reshape(-1)
