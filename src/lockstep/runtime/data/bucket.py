"""An order in which samples of like size follow one another."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.runtime.streams import seed_of

POOL = 32
"""Buckets of a pool: within a pool the samples are sorted by size, and all around it they stay in random order."""


def bucketed(permutation: Tensor, sizes: NDArray[np.int64], bucket: int, seed: int, epoch: int) -> Tensor:
    """The permutation, with samples of like size in buckets, and the buckets of a pool in random order.

    A function of its arguments alone: neither of the number of ranks nor of the batch.

    Args:
        permutation: (length,) int64, the order of the epoch.
        sizes: (length,) targets of each sample, by index.
        bucket: samples that follow one another because they are of like size.
        seed, epoch: choose the order of the buckets.
    """
    length, pool = len(permutation), bucket * POOL
    of_pool = np.arange(length) // pool
    # Equal sizes keep the random order of the permutation: lexsort is stable.
    by_size = np.lexsort((sizes[permutation.numpy()], of_pool))
    starts = np.arange(0, length, bucket)
    draws = torch.rand(len(starts), generator=torch.Generator().manual_seed(seed_of(seed, "buckets", epoch)))
    order = np.lexsort((draws.numpy(), starts // pool))
    # places: (buckets, bucket) positions before the buckets change places; the last bucket may be a short one
    places = (starts[order][:, None] + np.arange(bucket)).ravel()
    return permutation[torch.from_numpy(by_size[places[places < length]])]
