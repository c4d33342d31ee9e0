"""Pair 07: the sampler exists only on several ranks, and nobody tells it the epoch.

As one process the loader shuffles by itself and the order is new each epoch.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORDS, GLOBAL_BATCH, EPOCHS = 12, 8, 3


class Captions(Dataset[tuple[Tensor, Tensor]]):
    """Pictures of 6 numbers, and 4 words about each."""

    def __init__(self, length: int = 48) -> None:
        draw = torch.Generator().manual_seed(7)
        self.pictures = torch.randn(length, 6, generator=draw)
        self.words = torch.randint(WORDS, (length, 4), generator=draw)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.words[index], self.pictures[index]


class Painter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.paint = nn.Embedding(WORDS, 8), nn.Linear(8, 6)

    def forward(self, words: Tensor, pictures: Tensor) -> Tensor:
        return F.mse_loss(self.paint(self.embed(words).mean(dim=1)), pictures)


def train(rank: int, num_ranks: int) -> None:
    dataset = Captions()
    sampler = DistributedSampler(dataset, num_ranks, rank) if dist.is_initialized() else None
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, shuffle=sampler is None, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    model = Painter()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        for words, pictures in loader:
            loss = model(words, pictures)
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
