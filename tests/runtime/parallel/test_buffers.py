"""Rank 0's tensors on every rank."""

import torch
from torch import nn

from lockstep.runtime.parallel.buffers import broadcast_tensors, sync_buffers
from lockstep.runtime.world import World
from tests.ranks import run_ranks


def sent() -> list[torch.Tensor]:
    with World.enter(threads=1) as world:
        norm = nn.BatchNorm1d(2)
        norm.running_mean.fill_(world.rank + 1)
        norm.num_batches_tracked.fill_(world.rank + 5)
        sync_buffers(norm)
        odd = torch.full((2, 3), float(world.rank), dtype=torch.float64).t()
        broadcast_tensors([odd, torch.zeros(0)])
        return [norm.running_mean, norm.num_batches_tracked, odd]


def test_every_type_and_layout_is_rank_0s() -> None:
    for mean, batches, odd in run_ranks(sent, 2):
        assert mean.tolist() == [1, 1]
        assert int(batches) == 5
        assert not odd.any()
