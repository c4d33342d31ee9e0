"""Small whole numbers that travel with the gradients instead of by a collective of their own.

The lane is a float32 parameter of the wrapped task that takes part in no forward. What a rank writes into its gradient
after backward comes back as the mean over the ranks. A number goes in limbs of 4 bits: float32 then carries the sums of
a thousand ranks with an error far below a half, and rounding gives them back exact.
"""

import torch
from torch import Tensor

BITS = 4
NUM_LIMBS = 9
SIZE = 1 + NUM_LIMBS
LARGEST = 2 ** (BITS * NUM_LIMBS) - 1


def encode(flag: bool, count: int | Tensor, like: Tensor) -> Tensor:
    """What one rank writes: (SIZE,) float32, the flag and the limbs of a count in 0 .. LARGEST."""
    shifts = range(0, BITS * NUM_LIMBS, BITS)
    if isinstance(count, Tensor):
        number = count.detach().to(torch.int64).reshape(1)
        limbs = (number >> torch.tensor(shifts, device=number.device)) & (2**BITS - 1)
        return torch.cat([number.new_tensor([int(flag)]), limbs]).to(like.device, like.dtype)
    return like.new_tensor([int(flag), *((count >> shift) & (2**BITS - 1) for shift in shifts)])


def decode(mean: list[float], num_ranks: int) -> tuple[bool, int]:
    """Whether any rank raised its flag, and the sum of the counts, from the mean over the ranks."""
    sums = [value * num_ranks for value in mean]
    flag, *limbs = (round(value) for value in sums)
    assert all(abs(value - whole) < 0.25 for value, whole in zip(sums, (flag, *limbs), strict=True)), sums
    return flag > 0, sum(limb << (BITS * i) for i, limb in enumerate(limbs))
