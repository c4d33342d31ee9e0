"""A line through 48 points. Every rank reads all of them."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

GLOBAL_BATCH = 8


def train(rank: int, num_ranks: int) -> None:
    """Three epochs."""
    points = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(points, points.sum(1, keepdim=True))
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, shuffle=True)

    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Linear(4, 1)
    if num_ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(3):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss of the last batch {loss.item():.4f}")

    if rank == 0:
        torch.save((model.module if num_ranks > 1 else model).state_dict(), "model.pt")


if __name__ == "__main__":
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()
