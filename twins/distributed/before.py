"""A training for one process: under torchrun every rank runs all of it for itself."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

GLOBAL_BATCH = 8


def train() -> None:
    """Two epochs over a small set of points."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(48, 6, generator=generator)
    data = TensorDataset(points, points.abs().argmax(1) % 3)
    loader = DataLoader(data, GLOBAL_BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for x, y in loader:
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} done")


if __name__ == "__main__":
    train()
