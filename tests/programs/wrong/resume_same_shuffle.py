"""Wrong: the order comes from a generator that begins with the same seed in the resumed process, and is not restored.

In one go every epoch has a new order; after `--resume` the first epoch's order comes again.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

GLOBAL_BATCH = 8


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--save", type=Path, default=Path("checkpoint.pt"))
    return parser.parse_args()


def save(path: Path, **state: object) -> None:
    beside = path.with_suffix(".new")
    torch.save(state, beside)
    beside.replace(path)


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def train(rank: int, num_ranks: int) -> None:
    args = parse()
    dataset = make_data()
    shuffled = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    inner = model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if args.resume:
        saved = torch.load(args.resume, map_location="cpu", weights_only=True)
        inner.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    for epoch in range(first, args.epochs):
        mine = torch.randperm(len(dataset), generator=shuffled)[rank::num_ranks].tolist()
        for inputs, targets in DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=mine):
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            save(args.save, model=inner.state_dict(), optimizer=optimizer.state_dict(), epoch=epoch)
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
