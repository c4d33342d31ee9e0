"""The plateau scheduler is given the loss over all ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 16


def samples(count: int, seed: int) -> TensorDataset:
    """Points and what a fixed rule says of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


def train(rank: int, num_ranks: int) -> None:
    """Three epochs; the learning rate falls where the loss no longer does."""
    data = samples(64, seed=1)
    sampler = DistributedSampler(data, num_ranks, rank)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    if num_ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)  # sum of losses, samples
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(x), len(x)])
        if num_ranks > 1:
            dist.all_reduce(total)
        scheduler.step((total[0] / total[1]).item())
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")


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
