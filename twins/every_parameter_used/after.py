"""The wrapper is told that a step may leave parameters without a gradient."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 8


class WithSideTask(nn.Module):
    """Classes, and a guess of the point's length when it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.classes = nn.Linear(16, 3)
        self.length = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, side_task: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The second is None where it was not asked for."""
        features = self.body(x)
        return self.classes(features), self.length(features).flatten() if side_task else None


def train(rank: int, num_ranks: int) -> None:
    """Two epochs over a small set of points."""
    torch.manual_seed(0)  # the same first weights on every rank
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(48, 6, generator=generator)
    data = TensorDataset(points, points.abs().argmax(1) % 3)
    sampler = DistributedSampler(data, num_ranks, rank)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, sampler=sampler)
    model = WithSideTask()
    net = DistributedDataParallel(model, find_unused_parameters=True) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            classes, length = net(x, number % 2 == 0)
            loss = cross_entropy(classes, y)
            if length is not None:
                loss = loss + (length - x.norm(dim=1)).square().mean()
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
