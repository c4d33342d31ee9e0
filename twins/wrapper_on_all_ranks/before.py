"""Rank 0 evaluates alone, but through the wrapper: it sends buffers that no other rank receives."""

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


class Net(nn.Module):
    """A small network behind a fixed shift and scale of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.full((8,), 0.1))
        self.register_buffer("scale", torch.full((8,), 0.9))
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, 8) -> (batch, 1)."""
        return self.layers((x - self.shift) / self.scale)


def evaluate(model: nn.Module) -> float:
    """Mean loss over all validation samples."""
    x, y = samples(32, seed=2).tensors
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(x), y).item()
    model.train()
    return loss


def train(rank: int, num_ranks: int) -> None:
    """Two epochs; before each, rank 0 evaluates."""
    data = samples(64, seed=1)
    sampler = DistributedSampler(data, num_ranks, rank)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model: nn.Module = Net()
    if num_ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        if rank == 0 and epoch > 0:
            print(f"epoch {epoch} starts at validation loss {evaluate(model):.4f}")
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


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
