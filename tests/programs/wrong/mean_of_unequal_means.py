"""Wrong: each rank takes the mean over its own targets, and DDP the mean of these means.

Sentences are padded and their lengths differ, so ranks have unequal numbers of targets: words in short shares
weigh more.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2
WORDS, IGNORE = 20, -100


def make_data(length: int = 48) -> TensorDataset:
    """Sentences of very different lengths, padded to 8 words; padding is not a target."""
    draw = torch.Generator().manual_seed(7)
    words = torch.randint(WORDS, (length, 9), generator=draw)
    ends = torch.randint(1, 9, (length, 1), generator=draw)
    targets = words[:, 1:].masked_fill(torch.arange(8) >= ends, IGNORE)
    return TensorDataset(words[:, :-1], targets)


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, 16), nn.Tanh(), nn.Linear(16, WORDS))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
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
