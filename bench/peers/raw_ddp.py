"""Hand-written PyTorch DDP, as the official tutorial writes it: the floor everyone is measured against.

BENCH_RAW=no-comm leaves the wrapper away: the same step without communication, on the same cores at the same time.
"""

import contextlib
import os

import torch
import torch.distributed as dist
from common import BATCH, LR, PRECISION, SEED, Clock, UNet, dataset
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

clock = Clock()
dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(SEED)
data = dataset(num_ranks)
sampler = DistributedSampler(data, shuffle=True, seed=SEED, drop_last=True)
loader = DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True, num_workers=0)
model = UNet() if os.environ.get("BENCH_RAW") == "no-comm" else DistributedDataParallel(UNet())
optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
criterion = torch.nn.CrossEntropyLoss()
value = 0.0
sampler.set_epoch(0)
for image, label in loader:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16) if PRECISION == "bf16" else contextlib.nullcontext():
        loss = criterion(model(image), label)
    loss.backward()
    optimizer.step()
    value = loss.item()
    clock.tick()
if rank == 0:
    clock.report("raw-ddp", value, num_ranks)
del model  # before the group, or the process may abort at exit
dist.destroy_process_group()
