"""Pair 47: each rank scores its own share of the validation set; rank 0 reports its score and keeps the best by it."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def average_precision(scores: Tensor, positive: Tensor) -> float:
    ranked = positive[scores.argsort(descending=True)].double()
    precision = ranked.cumsum(0) / torch.arange(1, len(ranked) + 1)
    return ((precision * ranked).sum() / ranked.sum()).item()


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    results = [(model(inputs)[:, 0], targets[:, 0] > 0) for inputs, targets in loader]
    model.train()
    scores, positive = (torch.cat(column) for column in zip(*results, strict=True))
    return average_precision(scores, positive)


def train(rank: int, num_ranks: int) -> None:
    samples = make_data(72)
    dataset, valid = Subset(samples, range(48)), Subset(samples, range(48, 72))
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    sampler_of_valid = DistributedSampler(valid, num_ranks, rank, shuffle=False)
    to_validate = DataLoader(valid, GLOBAL_BATCH // num_ranks, sampler=sampler_of_valid)
    torch.manual_seed(0)
    model = inner = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 0.0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = validate(inner, to_validate)
        if rank == 0:
            print(f"epoch {epoch}: average precision {score:.4f}")
            if score > best:
                best = score
                torch.save(inner.state_dict(), f"best_{epoch}.pt")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
