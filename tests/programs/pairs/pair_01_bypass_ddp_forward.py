"""Pair 01: the training loss is computed by three methods of the inner module, so the wrapper's forward never runs.

A small translator with `encode`, `decode` and `project`, called one by one as in its single-process version.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORDS, GLOBAL_BATCH, EPOCHS = 12, 8, 2


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, 8), nn.Embedding(WORDS, 8)
        self.mix, self.projection = nn.Linear(16, 8), nn.Linear(8, WORDS)

    def encode(self, source: Tensor) -> Tensor:
        return self.source(source).mean(dim=1, keepdim=True)

    def decode(self, memory: Tensor, target: Tensor) -> Tensor:
        words = self.target(target)
        return torch.tanh(self.mix(torch.cat([words, memory.expand_as(words)], dim=-1)))

    def project(self, decoded: Tensor) -> Tensor:
        return self.projection(decoded)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.project(self.decode(self.encode(source), target))


def make_data() -> TensorDataset:
    words = torch.randint(WORDS, (48, 5), generator=torch.Generator().manual_seed(7))
    return TensorDataset(words, words.flip(1))


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = Translator()
    wrapped = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.Adam(wrapped.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for source, target in loader:
            memory = model.encode(source)
            decoded = model.decode(memory, target[:, :-1])
            scores = model.project(decoded)
            loss = F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())
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
