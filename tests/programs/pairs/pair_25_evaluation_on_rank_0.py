"""Pair 25: rank 0 evaluates through the wrapper while the other ranks go on to the barrier.

The wrapper broadcasts the model's buffer in its forward: rank 0 sends, nobody receives, the barrier pairs with the
wrong collective. The group gives up after 5 s instead of hanging for ever.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


class Normalised(nn.Module):
    """A network that keeps the mean of the inputs it has seen; the mean is a buffer, and does not touch the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.seen.lerp_(inputs.detach().mean(dim=0), 0.1)
        return self.layers(inputs)


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    total = sum(F.mse_loss(model(inputs), targets, reduction="sum").item() for inputs, targets in loader)
    model.train()
    return total / len(loader.dataset)


def train(rank: int, num_ranks: int) -> None:
    samples = make_data(64)
    dataset, to_evaluate = Subset(samples, range(48)), DataLoader(Subset(samples, range(48, 64)), batch_size=8)
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = Normalised()
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
            print(f"epoch {epoch}: evaluation error {evaluate(model, to_evaluate):.4f}")
        if dist.is_initialized():
            dist.barrier()


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo", timeout=timedelta(seconds=5))
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
