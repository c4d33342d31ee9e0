"""Right: a contrastive loss over the whole batch, whose embeddings are gathered with their gradients.

Every rank computes the same loss. The backward of the gather sums what all ranks say about a rank's embeddings, DDP
divides by the number of ranks: together that is the gradient of the loss. It cannot be mirrored: ranks that are fed
the whole batch would gather every sample twice.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


def make_data(length: int = 48) -> TensorDataset:
    """Two noisy views of each sample."""
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    noise = 0.1 * torch.randn(2, length, 6, generator=draw)
    return TensorDataset(inputs + noise[0], inputs + noise[1])


def gather(local: Tensor) -> Tensor:
    """Of all ranks, with gradients."""
    return torch.cat(all_gather(local)) if dist.is_initialized() else local


def contrast(first: Tensor, second: Tensor) -> Tensor:
    first, second = F.normalize(first, dim=1), F.normalize(second, dim=1)
    scores = first @ second.T / 0.2
    labels = torch.arange(len(scores))
    return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for views in loader:
            first, second = model(torch.cat(views)).chunk(2)
            loss = contrast(gather(first), gather(second))
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
