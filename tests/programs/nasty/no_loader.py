"""No DataLoader: batches are cut from one long text at positions drawn from the global random numbers.

Otherwise right: the wrapper is used, the seed is offset by rank, and the global batch is kept.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH, GLOBAL_BATCH, STEPS = 20, 8, 8, 12


def get_batch(text: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    begins = torch.randint(len(text) - WIDTH - 1, (batch,))
    words = torch.stack([text[begin : begin + WIDTH + 1] for begin in begins])
    return words[:, :-1], words[:, 1:]


def train(rank: int, num_ranks: int) -> None:
    text = torch.randint(WORDS, (1000,), generator=torch.Generator().manual_seed(7))
    torch.manual_seed(1337 + rank)
    model = nn.Sequential(nn.Embedding(WORDS, 16), nn.Tanh(), nn.Linear(16, WORDS))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        words, targets = get_batch(text, GLOBAL_BATCH // num_ranks)
        loss = F.cross_entropy(model(words).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step}: loss of rank 0 {loss.item():.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
