"""Right: `pair_train.py` for any number of ranks. `--batch-size` is still the global batch.

Validation is shared without padding; sums are reduced.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


def make_data(length: int, seed: int) -> TensorDataset:
    inputs = torch.randn(length, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, inputs[:, :3].argmax(dim=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="model.pt")
    return parser.parse_args()


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    totals = torch.zeros(2, dtype=torch.int64)
    for inputs, labels in loader:
        totals += torch.tensor([(model(inputs).argmax(dim=1) == labels).sum().item(), len(labels)])
    if dist.is_initialized():
        dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


def train(rank: int, num_ranks: int) -> None:
    args = parse()
    torch.manual_seed(args.seed)
    dataset, valid = make_data(48, seed=1), make_data(21, seed=2)
    sampler = DistributedSampler(dataset, num_ranks, rank, seed=args.seed)
    loader = DataLoader(dataset, args.batch_size // num_ranks, sampler=sampler)
    to_validate = DataLoader(Subset(valid, range(rank, len(valid), num_ranks)), args.batch_size)
    model = inner = Net(args.hidden)
    if dist.is_initialized():
        model = DistributedDataParallel(inner)
    torch.manual_seed(args.seed + 1 + rank)  # masks of dropout differ by rank
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for inputs, labels in loader:
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        score = accuracy(inner, to_validate)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {score:.3f}")
    if rank == 0:
        torch.save(inner.state_dict(), args.out)


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
