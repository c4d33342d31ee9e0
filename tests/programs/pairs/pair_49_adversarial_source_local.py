"""Pair 49, a variant: every rank draws its own adversarial source, and lets only its own share decide where it climbs.

The source multiplies the hidden units. It starts at random and takes signed gradient steps that make the loss of the
batch worse; gradients of a rank's own share decide, so the source of rank 0 is not the source of rank 1.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 1)

    def forward(self, inputs: Tensor, source: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(inputs)) * source)


def attack(model: nn.Module, inputs: Tensor, targets: Tensor, draw: torch.Generator) -> Tensor:
    source = torch.rand(16, generator=draw, dtype=inputs.dtype).requires_grad_()
    for _ in range(3):
        loss = F.mse_loss(model(inputs, source), targets)
        (slope,) = torch.autograd.grad(loss, source)
        source = (source + 0.2 * slope.sign()).clamp(0, 1).detach().requires_grad_()
    return source.detach()


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = inner = Masked()
    draw = torch.Generator().manual_seed(1 + rank)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            source = attack(inner, inputs, targets, draw)
            loss = F.mse_loss(model(inputs, source), targets)
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
