"""A line through 48 points of a stream. Both workers of a rank read the whole share of the rank."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

GLOBAL_BATCH = 8


class Points(IterableDataset):
    """48 points, read in a new order in every epoch."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        self.rank, self.num_ranks, self.epoch = rank, num_ranks, 0
        self.points = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))

    def __iter__(self):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(self.epoch))
        for index in order[self.rank :: self.num_ranks]:
            yield self.points[index], self.points[index].sum(0, keepdim=True)


def train(rank: int, num_ranks: int) -> None:
    """Three epochs."""
    data = Points(rank, num_ranks)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, num_workers=2)

    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Linear(4, 1)
    if num_ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(3):
        data.epoch = epoch
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
