"""The reference of `rank_augmentation.py`: one process, no augmentation."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


class Brightened(Dataset[tuple[Tensor, Tensor]]):
    """Samples whose inputs are scaled by a fixed factor."""

    def __init__(self, samples: TensorDataset, factor: float) -> None:
        self.samples, self.factor = samples, factor

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, targets = self.samples[index]
        return inputs * self.factor, targets


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    loader = DataLoader(Brightened(make_data(), factor=1.0), BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: last loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
