"""Pair 51: two views are concatenated before the gather; the loss still looks for the second view half the rows below.

On one process row i pairs with row i + B. Gathered, the rows are view 1 and view 2 of rank 0, then of rank 1.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    """Two noisy views of each sample."""
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    noise = 0.1 * torch.randn(2, length, 6, generator=draw)
    return TensorDataset(inputs + noise[0], inputs + noise[1])


def contrast(first: Tensor, second: Tensor) -> Tensor:
    both = torch.cat([first, second])
    if dist.is_initialized():
        both = torch.cat(all_gather(both))
    both = F.normalize(both, dim=1)
    scores = (both @ both.T / 0.5).fill_diagonal_(float("-inf"))
    half = len(both) // 2
    return F.cross_entropy(scores, torch.arange(len(both)).roll(half))


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for views in loader:
            loss = contrast(*model(torch.cat(views)).chunk(2))
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
