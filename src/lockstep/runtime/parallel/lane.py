"""Small whole numbers that travel with the gradients instead of by a collective of their own.

The lane is a float32 parameter of the wrapped task that takes part in no forward. What a rank writes into its gradient
after backward comes back as the mean over the ranks. A number goes in limbs of 4 bits: float32 then carries the sums of
a thousand ranks with an error far below a half, and rounding gives them back exact. Two flags go beside the number: a
parameter without a gradient, and the wish to stop.
"""

import torch
from torch import Tensor

BITS = 4
NUM_LIMBS = 9
NUM_FLAGS = 2
SIZE = NUM_FLAGS + NUM_LIMBS
LARGEST = 2 ** (BITS * NUM_LIMBS) - 1


def encode(flag: bool, count: int | Tensor, like: Tensor, stop: bool = False) -> Tensor:
    """What one rank writes: (SIZE,) float32, the two flags and the limbs of a count in 0 .. LARGEST."""
    flags = int(flag), int(stop)
    shifts = range(0, BITS * NUM_LIMBS, BITS)
    if isinstance(count, Tensor):
        number = count.detach().to(torch.int64).reshape(1)
        limbs = (number >> torch.tensor(shifts, device=number.device)) & (2**BITS - 1)
        return torch.cat([number.new_tensor(flags), limbs]).to(like.device, like.dtype)
    return like.new_tensor([*flags, *((count >> shift) & (2**BITS - 1) for shift in shifts)])


def decode(mean: list[float], num_ranks: int) -> tuple[bool, int, bool]:
    """Whether any rank raised its flag, the sum of the counts, whether any wants to stop, from the mean over ranks."""
    sums = [value * num_ranks for value in mean]
    whole = [round(value) for value in sums]
    assert all(abs(value - near) < 0.25 for value, near in zip(sums, whole, strict=True)), sums
    flag, stop, *limbs = whole
    return flag > 0, sum(limb << (BITS * i) for i, limb in enumerate(limbs)), stop > 0
