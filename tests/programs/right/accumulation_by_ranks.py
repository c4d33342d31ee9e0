"""Right: the micro-batch is kept, and N ranks need N times fewer of them for the same global batch.

A step takes other batches of the loader on 2 ranks than on 1: this program cannot be mirrored.
"""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

MICRO_BATCH, MICRO_STEPS, EPOCHS = 4, 4, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, MICRO_BATCH, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    micro_steps = MICRO_STEPS // num_ranks
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for number, (inputs, targets) in enumerate(loader, 1):
            last = number % micro_steps == 0
            quiet = dist.is_initialized() and not last
            with model.no_sync() if quiet else contextlib.nullcontext():
                loss = F.mse_loss(model(inputs), targets)
                (loss / micro_steps).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: last loss of rank 0 {loss.item():.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
