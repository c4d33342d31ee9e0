"""A line through 48 points, judged by 16 others. All ranks draw the same split."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

GLOBAL_BATCH = 8


def evaluate(model: torch.nn.Module, loader: DataLoader) -> float:
    """The mean squared error over all samples of all ranks."""
    sums = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for inputs, targets in loader:
            sums += torch.tensor([(model(inputs) - targets).square().sum(), len(targets)], dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def train(rank: int, num_ranks: int) -> None:
    """Three epochs."""
    points = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(points, points.sum(1, keepdim=True))
    training, held_out = random_split(data, [48, 16], generator=torch.Generator().manual_seed(0))
    sampler = DistributedSampler(training, num_ranks, rank)
    loader = DataLoader(training, GLOBAL_BATCH // num_ranks, sampler=sampler)
    own = DistributedSampler(held_out, num_ranks, rank, shuffle=False)
    evaluation = DataLoader(held_out, 4, sampler=own)

    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Linear(4, 1)
    if num_ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = evaluate(model.module if num_ranks > 1 else model, evaluation)
        if rank == 0:
            print(f"epoch {epoch}: mean squared error {error:.6f}")

    if rank == 0:
        torch.save((model.module if num_ranks > 1 else model).state_dict(), "model.pt")


if __name__ == "__main__":
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()
