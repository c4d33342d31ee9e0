"""Pair 03: `no_sync` is chosen by `batch % accumulate`, the step by `(batch + 1) % accumulate`.

So the first micro-batch of a step is synchronised and the last one, which the step follows, is not.
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

GLOBAL_BATCH, EPOCHS = 16, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


class Trainer:
    def __init__(self, model: nn.Module, accumulate: int) -> None:
        self.model, self.accumulate = model, accumulate
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_epoch(self, loader: DataLoader) -> float:
        for batch, (inputs, targets) in enumerate(loader):
            quiet = dist.is_initialized() and batch % self.accumulate != 0
            with self.model.no_sync() if quiet else contextlib.nullcontext():
                loss = F.mse_loss(self.model(inputs), targets) / self.accumulate
                loss.backward()
            if (batch + 1) % self.accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
        return loss.item()


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // (2 * num_ranks), sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    trainer = Trainer(model, accumulate=2)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        loss = trainer.train_epoch(loader)
        if rank == 0:
            print(f"epoch {epoch}: last loss of rank 0 {loss:.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
