"""A training for one process that knows nothing of ranks: a small classifier with dropout and a schedule."""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


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
    right = sum((model(inputs).argmax(dim=1) == labels).sum().item() for inputs, labels in loader)
    return right / len(loader.dataset)


def main() -> None:
    args = parse()
    torch.manual_seed(args.seed)
    loader = DataLoader(make_data(48, seed=1), args.batch_size, shuffle=True)
    to_validate = DataLoader(make_data(21, seed=2), args.batch_size)
    model = Net(args.hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    for epoch in range(args.epochs):
        model.train()
        for inputs, labels in loader:
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: accuracy {accuracy(model, to_validate):.3f}")
    torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
