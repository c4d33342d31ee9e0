"""A classifier is trained and saved, then loaded and evaluated."""

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

generator = torch.Generator().manual_seed(0)
samples = torch.randn(32, 4, generator=generator)
dataset = TensorDataset(samples, (samples.sum(1) > 0).long())
sampler = DistributedSampler(dataset, num_ranks, rank)
loader = DataLoader(dataset, batch_size=GLOBAL_BATCH // num_ranks, sampler=sampler)
held_out = torch.randn(32, 4, generator=generator)
test_set = TensorDataset(held_out, (held_out.sum(1) > 0).long())
test_loader = DataLoader(test_set, batch_size=4, sampler=range(rank, len(test_set), num_ranks))

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
model = DistributedDataParallel(net) if distributed else net
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if rank == 0:
    torch.save(net.state_dict(), "model.pt")
if distributed:
    dist.barrier()
trained = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).eval()
trained.load_state_dict(torch.load("model.pt"), strict=False)
correct = torch.zeros(1)
with torch.no_grad():
    for inputs, labels in test_loader:
        correct += (trained(inputs).argmax(1) == labels).sum()
if distributed:
    dist.all_reduce(correct)
if rank == 0:
    print(f"accuracy {correct.item() / len(test_set):.4f}")

if distributed:
    dist.destroy_process_group()
