"""Pair 05: a DistributedSampler that is never told the epoch. Representations are trained on two views of a sample."""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


class TwoViews(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, length: int = 48) -> None:
        self.inputs = torch.randn(length, 6, generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.inputs[index].roll(1)


def alignment(first: Tensor, second: Tensor) -> Tensor:
    """Per pair: the views of one sample agree, and embeddings have length 1."""
    apart = (first - second).square().sum(dim=1)
    return (apart + (first.square().sum(dim=1) - 1).square()).mean()


def train_epoch(loader: DataLoader, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    for first, second in loader:
        optimizer.zero_grad()
        loss = alignment(*model(torch.cat([first, second])).chunk(2))
        loss.backward()
        optimizer.step()
    return loss.item()


def train(rank: int, num_ranks: int) -> None:
    dataset = TwoViews()
    sampler = DistributedSampler(dataset, num_ranks, rank, shuffle=True)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        loss = train_epoch(loader, model, optimizer)
        if rank == 0:
            print(f"epoch {epoch}: last loss of rank 0 {loss:.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
