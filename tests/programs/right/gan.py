"""Right: two wrapped networks, two optimizers. The latent noise has its own seed on each rank.

One forward of the generator serves both losses. The second backward leaves gradients in the discriminator too: they
are cleared before they could be used.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def wrap(network: nn.Module) -> nn.Module:
    return DistributedDataParallel(network) if dist.is_initialized() else network


def judge(scores: Tensor, real: bool) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    generator = wrap(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 6)))
    discriminator = wrap(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(), nn.Linear(16, 1)))
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-2)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-2)
    noise = torch.Generator().manual_seed(100 + rank)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for real, _ in loader:
            fake = generator(torch.randn(len(real), 3, generator=noise))
            loss = judge(discriminator(real), True) + judge(discriminator(fake.detach()), False)
            of_discriminator.zero_grad()
            loss.backward()
            of_discriminator.step()

            loss_of_generator = judge(discriminator(fake), True)
            of_generator.zero_grad()
            loss_of_generator.backward()
            of_generator.step()
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
