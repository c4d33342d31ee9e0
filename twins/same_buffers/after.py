"""The running mean follows the whole batch: sums and counts of all ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 16


def samples(count: int, seed: int) -> TensorDataset:
    """Points and what a fixed rule says of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


class Centre(nn.Module):
    """Keeps a running mean of what comes by; takes it off in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, 16), the same out."""
        if not self.training:
            return x - self.mean
        total = torch.cat([x.detach().sum(0), torch.tensor([float(len(x))])])
        if dist.is_initialized():
            dist.all_reduce(total)
        self.mean.lerp_(total[:-1] / total[-1], 0.1)
        return x


def evaluate(model: nn.Module, rank: int, num_ranks: int) -> float:
    """Mean loss over all validation samples; each rank takes its share of them."""
    x, y = (one[rank::num_ranks] for one in samples(32, seed=2).tensors)
    model.eval()
    with torch.no_grad():
        errors = (model(x) - y) ** 2
    model.train()
    total = torch.tensor([errors.sum(), len(errors)])
    if num_ranks > 1:
        dist.all_reduce(total)
    return (total[0] / total[1]).item()


def train(rank: int, num_ranks: int) -> None:
    """Two epochs, an evaluation after each."""
    data = samples(64, seed=1)
    sampler = DistributedSampler(data, num_ranks, rank)
    loader = DataLoader(data, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), Centre(), nn.Linear(16, 1))
    model = DistributedDataParallel(inner) if num_ranks > 1 else inner
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        loss = evaluate(inner, rank, num_ranks)
        if rank == 0:
            print(f"epoch {epoch}: validation loss {loss:.4f}")


def main() -> None:
    """Train alone, or as one of the ranks that torchrun has started."""
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
