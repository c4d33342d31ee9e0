"""Small whole numbers that travel with the gradients instead of by a collective of their own.

The lane is a float32 parameter of the wrapped task that takes part in no forward. What a rank writes into its gradient
after backward comes back as the mean over the ranks. A number goes in limbs of 12 bits, so that float32 carries sums up
to 2^36 over thousands of ranks without a rounding.
"""

import torch
from torch import Tensor

LIMB = 4096
NUM_LIMBS = 3
SIZE = 1 + NUM_LIMBS


def encode(flag: bool, count: int | Tensor, like: Tensor) -> Tensor:
    """What one rank writes: (SIZE,) float32, the flag and the limbs of a count in 0 .. 2^36 - 1."""
    if isinstance(count, Tensor):
        number = count.detach().to(torch.int64).reshape(())
        parts = [number % LIMB, (number // LIMB) % LIMB, number // LIMB**2]
        return torch.stack([number.new_tensor(int(flag)), *parts]).to(like.device, like.dtype)
    return like.new_tensor([int(flag), count % LIMB, (count // LIMB) % LIMB, count // LIMB**2])


def decode(mean: list[float], num_ranks: int) -> tuple[bool, int]:
    """Whether any rank raised its flag, and the sum of the counts, from the mean over the ranks."""
    flag, *limbs = (round(value * num_ranks) for value in mean)
    return flag > 0, sum(limb * LIMB**i for i, limb in enumerate(limbs))
