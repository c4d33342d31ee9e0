"""Pair 17: a distributed sampler of one's own takes its permutation from the global random numbers.

These were seeded by rank, so each rank deals out another pack of cards: some samples are read twice, others never.
"""

import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset

GLOBAL_BATCH, EPOCHS = 8, 2


class MyDistributedSampler(Sampler[int]):
    def __init__(self, length: int, rank: int, num_ranks: int) -> None:
        self.length, self.rank, self.num_ranks = length, rank, num_ranks

    def __len__(self) -> int:
        return self.length // self.num_ranks

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.length).tolist()
        yield from order[self.rank :: self.num_ranks][: len(self)]


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def train(rank: int, num_ranks: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    torch.manual_seed(1 + rank)
    dataset = make_data()
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=MyDistributedSampler(len(dataset), rank, num_ranks))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
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
