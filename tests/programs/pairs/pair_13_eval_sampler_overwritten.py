"""Pair 13: the sharded evaluation sampler is overwritten by a sequential one.

Every rank reads the same evaluation samples. A quick evaluation ends after a fixed number of batches: with the
sharded sampler the ranks would cover the whole set together; as it is, they all read the same half of it.
"""

import itertools
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS, EVALUATION_BATCHES = 8, 2, 4


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, num_ranks: int) -> float:
    model.eval()
    total = torch.zeros(())
    for inputs, targets in itertools.islice(loader, EVALUATION_BATCHES):
        total += F.mse_loss(model(inputs), targets)
    mean = total / EVALUATION_BATCHES
    if dist.is_initialized():
        dist.all_reduce(mean)
        mean /= num_ranks
    model.train()
    return mean.item()


def train(rank: int, num_ranks: int) -> None:
    samples = make_data(80)
    dataset, to_evaluate = Subset(samples, range(48)), Subset(samples, range(48, 80))
    if dist.is_initialized():
        sampler = DistributedSampler(dataset)
        eval_sampler = DistributedSampler(to_evaluate, shuffle=False)
    else:
        sampler = RandomSampler(dataset)
        eval_sampler = SequentialSampler(to_evaluate)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    eval_sampler = SequentialSampler(to_evaluate)
    eval_loader = DataLoader(to_evaluate, GLOBAL_BATCH // num_ranks, sampler=eval_sampler)
    torch.manual_seed(0)
    model = inner = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        if dist.is_initialized():
            sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = evaluate(inner, eval_loader, num_ranks)
        if rank == 0:
            print(f"epoch {epoch}: evaluation error {error:.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
