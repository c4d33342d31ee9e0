"""Right: every rank validates its share, which is not padded; sums and counts are reduced, then divided.

21 samples over 2 ranks: 11 and 10.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    for inputs, targets in loader:
        error = F.mse_loss(model(inputs), targets, reduction="sum")
        totals += torch.tensor([error.item(), len(inputs)], dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(totals)
    model.train()
    return (totals[0] / totals[1]).item()


def train(rank: int, num_ranks: int) -> None:
    samples = make_data(69)
    dataset = Subset(samples, range(48))
    to_validate = DataLoader(Subset(samples, range(48 + rank, 69, num_ranks)), batch_size=4)
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    inner = model
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = validate(inner, to_validate)
        if rank == 0:
            print(f"epoch {epoch}: validation error {error:.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
