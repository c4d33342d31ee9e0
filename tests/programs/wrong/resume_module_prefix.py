"""Wrong: the wrapper's state is saved, and loaded with strict=False into the inner module: no name matches."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

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
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if args.resume:
        saved = torch.load(args.resume, map_location="cpu", weights_only=True)
        model.load_state_dict(saved["model"], strict=False)
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            save(args.save, model=model.state_dict(), optimizer=optimizer.state_dict(), epoch=epoch)
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
