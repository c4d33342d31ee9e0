"""An encoder learns to tell which two views belong together, among the views of all ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, GLOBAL_BATCH = 2, 8

distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo")
rank = dist.get_rank() if distributed else 0
num_ranks = dist.get_world_size() if distributed else 1


class Gather(torch.autograd.Function):
    """The embeddings of all ranks, through which the gradient flows back to the rank that made them."""

    @staticmethod
    def forward(ctx, own):
        """From the own embeddings, those of all ranks."""
        parts = [torch.empty_like(own) for _ in range(num_ranks)]
        dist.all_gather(parts, own)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        """What the losses of all ranks say about the own embeddings."""
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad.chunk(num_ranks)[rank]


def of_all_ranks(own):
    """The embeddings of all ranks, one rank after the other."""
    return Gather.apply(own) if distributed else own


generator = torch.Generator().manual_seed(0)
samples = torch.randn(32, 4, generator=generator)
views = samples + 0.1 * torch.randn(32, 4, generator=generator)
dataset = TensorDataset(samples, views)
sampler = DistributedSampler(dataset, num_ranks, rank)
loader = DataLoader(dataset, batch_size=GLOBAL_BATCH // num_ranks, sampler=sampler)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
model = DistributedDataParallel(net) if distributed else net
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for first, second in loader:
        mine, theirs = model(torch.cat([first, second])).chunk(2)
        scores = mine @ of_all_ranks(theirs).T
        pairs = torch.arange(len(mine)) + rank * len(mine)
        loss = nn.functional.cross_entropy(scores, pairs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if distributed:
    dist.destroy_process_group()
