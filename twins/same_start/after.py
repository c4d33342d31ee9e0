"""All ranks start from the same weights, then average their gradients by hand."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 16


def samples(count: int, seed: int) -> TensorDataset:
    """Points and what a fixed rule says of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


def average_gradients(model: nn.Module, num_ranks: int) -> None:
    """Every rank gets the mean of all ranks' gradients."""
    for parameter in model.parameters():
        if num_ranks > 1 and parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= num_ranks


def train(rank: int, num_ranks: int) -> None:
    """Two epochs; gradients are averaged after each backward."""
    data = samples(64, seed=1)
    sampler = DistributedSampler(data, num_ranks, rank)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            average_gradients(model, num_ranks)
            optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")


def main() -> None:
    """Train alone, or as one of the ranks that torchrun has started."""
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
