"""Right: branches by rank that call the same, sources that change, groups of some ranks, messages."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loading(rank: int, num_ranks: int) -> tuple[DistributedSampler, DataLoader]:
    """32 samples in global batches of 8."""
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(32, 8, generator=generator), torch.randn(32, 1, generator=generator))
    sampler = DistributedSampler(data, num_ranks, rank)
    return sampler, DataLoader(data, 8 // num_ranks, sampler=sampler)


def exchange(rank: int, num_ranks: int) -> None:
    value = torch.full((3,), float(rank))
    if rank == 0:
        dist.broadcast(value, src=0)
        dist.broadcast(torch.zeros(3), src=num_ranks - 1)
    else:
        dist.broadcast(torch.zeros(3), src=0)
        dist.broadcast(value, src=num_ranks - 1)
    if rank != 0:
        dist.barrier()
    if rank == 0:
        dist.barrier()
    parts = [torch.ones(2) for _ in range(num_ranks)]
    dist.scatter(torch.zeros(2), parts if rank == 0 else None, src=0)
    dist.gather(torch.ones(2), parts if rank == 0 else None, dst=0)
    named = [{"rank": rank}] if rank == 0 else [None]
    dist.broadcast_object_list(named, src=0)
    dist.all_gather_object([None] * num_ranks, list(range(rank)))
    if rank == 0:
        dist.send(value, dst=1)
    if rank == 1:
        dist.recv(value, src=0)
    alone = dist.new_group([0])
    dist.all_reduce(value, group=alone)
    if rank == 0:
        dist.barrier(group=alone)
    groups = [dist.new_group([one]) for one in range(num_ranks)]
    dist.all_reduce(value, group=groups[rank])


def train(rank: int, num_ranks: int) -> None:
    sampler, loader = loading(rank, num_ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        exchange(rank, num_ranks)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
