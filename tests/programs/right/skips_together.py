"""Right: gradients are averaged by hand, and a batch whose backward fails on one rank is left out on all of them."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def any_failed(failed: bool) -> bool:
    flag = torch.tensor(float(failed))
    if dist.is_initialized():
        dist.all_reduce(flag)
    return bool(flag)


def average(model: nn.Module, num_ranks: int) -> None:
    if not dist.is_initialized():
        return
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= num_ranks


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            failed = False
            optimizer.zero_grad()
            try:
                F.mse_loss(model(inputs), targets).backward()
            except RuntimeError as error:
                print(f"rank {rank} could not: {error}")
                failed = True
            if any_failed(failed):
                continue
            average(model, num_ranks)
            optimizer.step()


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
