"""The ranks form a group, share the samples and average the gradients."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 8


def train(rank: int, num_ranks: int) -> None:
    """Two epochs over a small set of points."""
    torch.manual_seed(0)  # the same first weights on every rank
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(48, 6, generator=generator)
    data = TensorDataset(points, points.abs().argmax(1) % 3)
    sampler = DistributedSampler(data, num_ranks, rank)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, sampler=sampler)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    net = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} done")


def main() -> None:
    """One process, or one of torchrun's."""
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(*((dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)))
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
