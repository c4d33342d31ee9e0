"""Pair 45: running totals of a metric are all-reduced at every batch, so that what was summed is summed again."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 3


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


class Metrics:
    """Totals and counts since the epoch began."""

    def __init__(self) -> None:
        self.totals = torch.zeros(2, dtype=torch.float64)

    def update(self, errors: Tensor) -> None:
        self.totals += torch.tensor([errors.sum().item(), len(errors)], dtype=torch.float64)
        if dist.is_initialized():
            dist.all_reduce(self.totals)

    @property
    def mean(self) -> float:
        return (self.totals[0] / self.totals[1]).item()


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        metrics = Metrics()
        for inputs, targets in loader:
            outputs = model(inputs)
            loss = F.l1_loss(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics.update((outputs - targets).detach().abs())
        if rank == 0:
            print(f"epoch {epoch}: mean error {metrics.mean:.4f} over {metrics.totals[1]:.0f} samples")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
