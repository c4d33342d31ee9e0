"""Right: a stream that is split by rank and by worker; each sample is read once an epoch."""

import itertools
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

GLOBAL_BATCH, EPOCHS, LENGTH, WORKERS = 8, 2, 64, 2


class Stream(IterableDataset):
    """Samples made one after the other; the epoch decides the order. Every worker of every rank takes its own."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        self.rank, self.num_ranks, self.epoch = rank, num_ranks, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        for index in itertools.islice(order, self.rank * workers + number, None, self.num_ranks * workers):
            inputs = torch.randn(6, generator=torch.Generator().manual_seed(1000 + index))
            yield inputs, inputs.sum(dim=0, keepdim=True).sin()


def train(rank: int, num_ranks: int) -> None:
    stream = Stream(rank, num_ranks)
    loader = DataLoader(stream, GLOBAL_BATCH // num_ranks, num_workers=WORKERS)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        stream.epoch = epoch
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
