"""A right training whose dataset is a class of `__main__`, pickled for workers that are spawned."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


class Waves(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(6, generator=torch.Generator().manual_seed(1000 + index))
        return inputs, inputs.sum(dim=0, keepdim=True).sin()


def train(rank: int, num_ranks: int) -> None:
    dataset = Waves()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    workers = {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True}
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler, **workers)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
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
