"""A broken sample raises on one rank, the loop skips the batch there: ranks are out of step from then on."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 16


def samples(count: int, seed: int) -> TensorDataset:
    """Points and what a fixed rule says of them; two of the points are broken."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    x[[5, 29]] = torch.nan
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


class Net(nn.Module):
    """A small network that refuses what is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, 8) -> (batch, 1)."""
        if x.isnan().any():
            raise ValueError("the batch holds values that are no numbers")
        return self.layers(x)


def train(rank: int, num_ranks: int) -> None:
    """Two epochs; a batch that fails is skipped."""
    data = samples(64, seed=1)
    sampler = DistributedSampler(data, num_ranks, rank)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model: nn.Module = Net()
    if num_ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            try:
                loss = nn.functional.mse_loss(model(x), y)
            except ValueError as error:
                print(f"rank {rank}: {error}, skipped")
                continue
            loss.backward()
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
