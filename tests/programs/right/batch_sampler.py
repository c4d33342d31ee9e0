"""Right: a batch sampler of one's own that knows the ranks: each takes its share of every global batch."""

import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset

GLOBAL_BATCH, EPOCHS = 8, 2


class ShareOfBatches(Sampler[list[int]]):
    """Batches of the whole training, one share of each. The permutation is a function of seed and epoch alone."""

    def __init__(self, length: int, rank: int, num_ranks: int) -> None:
        self.length, self.rank, self.num_ranks, self.epoch = length, rank, num_ranks, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length // GLOBAL_BATCH

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.length, generator=torch.Generator().manual_seed(31 + self.epoch)).tolist()
        for begin in range(0, len(self) * GLOBAL_BATCH, GLOBAL_BATCH):
            yield order[begin + self.rank : begin + GLOBAL_BATCH : self.num_ranks]


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = ShareOfBatches(len(dataset), rank, num_ranks)
    loader = DataLoader(dataset, batch_sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
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
