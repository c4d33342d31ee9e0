"""Right: two training loaders side by side, labelled and unlabelled, each with its own sampler."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data() -> tuple[TensorDataset, TensorDataset]:
    draw = torch.Generator().manual_seed(7)
    labelled, unlabelled = torch.randn(32, 6, generator=draw), torch.randn(64, 6, generator=draw)
    return TensorDataset(labelled, labelled.sum(dim=1, keepdim=True).sin()), TensorDataset(unlabelled)


def train(rank: int, num_ranks: int) -> None:
    datasets = make_data()
    samplers = [DistributedSampler(one, num_ranks, rank, seed=seed) for seed, one in enumerate(datasets)]
    loaders = [
        DataLoader(one, batch // num_ranks, sampler=sampler)
        for one, batch, sampler in zip(datasets, (GLOBAL_BATCH, 2 * GLOBAL_BATCH), samplers, strict=True)
    ]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for (inputs, targets), (others,) in zip(*loaders, strict=True):
            outputs, of_others = model(torch.cat([inputs, others])).split([len(inputs), len(others)])
            loss = F.mse_loss(outputs, targets) + 0.1 * of_others.square().mean()
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
