"""Pair 09: the sampler is built in `main`; the epochs turn inside a Trainer that never sees it."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


class Trainer:
    """Turns epochs until it has made its steps. It was given loaders, not samplers."""

    def __init__(self, model: nn.Module, loaders: dict[str, DataLoader], total_steps: int, rank: int) -> None:
        self.model, self.loaders, self.total_steps, self.rank = model, loaders, total_steps, rank
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.steps = self.epochs = 0

    def run(self) -> None:
        while self.steps < self.total_steps:
            self.train_epoch()

    def train_epoch(self) -> None:
        for batch in self.loaders["train"]:
            self.train_step(batch)
        self.epochs += 1
        if self.rank == 0:
            print(f"epoch {self.epochs}: {self.steps} steps")

    def train_step(self, batch: tuple[Tensor, Tensor]) -> None:
        inputs, targets = batch
        loss = F.mse_loss(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    rank, num_ranks = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank, shuffle=True) if distributed else None
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, shuffle=not distributed, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if distributed:
        model = DistributedDataParallel(model)
    Trainer(model, {"train": loader}, EPOCHS * len(loader), rank).run()
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
