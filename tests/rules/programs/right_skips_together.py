"""Right: a loss that is no number on one rank makes all ranks skip the step."""

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


def train(rank: int, num_ranks: int) -> None:
    sampler, loader = loading(rank, num_ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            bad = torch.tensor(float(rank == 1 and number == 2))
            dist.all_reduce(bad, op=dist.ReduceOp.MAX)
            loss.backward()
            if not bad:
                optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
