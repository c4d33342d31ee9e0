"""Right: a script for GPUs only, as many are: nccl, `.cuda()`, `device_ids`, pinned batches, a checkpoint to its GPU.

Here no GPU is to be had, so it runs under the tool alone, where CPUs stand in.
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


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def train(rank: int, num_ranks: int, gpu: int) -> None:
    torch.cuda.set_device(gpu)
    device = torch.device("cuda", gpu)
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
    if dist.is_initialized():
        model = DistributedDataParallel(model, device_ids=[gpu], output_device=gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weight = torch.ones(1, device=device)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            inputs, targets = inputs.pin_memory().to(device, non_blocking=True), targets.cuda(gpu)
            loss = F.mse_loss(model(inputs), targets) * weight.to(gpu)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        if rank == 0:
            torch.save(model.state_dict(), f"epoch-{epoch}.pt")
            torch.load(f"epoch-{epoch}.pt", map_location=f"cuda:{gpu}")
            print(f"epoch {epoch}: last loss of rank 0 {loss.item():.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("nccl")
    gpu = int(os.environ.get("LOCAL_RANK", "0"))
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1, gpu)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
