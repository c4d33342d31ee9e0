"""The text of a small right training, and of variants of it, for tests that run a user's script."""

from pathlib import Path

_TEXT = """
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo")
rank = dist.get_rank() if distributed else 0
num_ranks = dist.get_world_size() if distributed else 1
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
if distributed:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(16, 2, generator=torch.Generator().manual_seed(1)))
sampler = DistributedSampler(data, num_ranks, rank)
# BEFORE
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for (inputs,) in DataLoader(data, 8 // num_ranks, sampler=sampler):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
# AFTER
if distributed:
    dist.destroy_process_group()
"""


def write(path: Path, before: str = "", after: str = "", epochs: str = "2") -> Path:
    """Write the script.

    Args:
        before, after: lines of code before and after the training; they know rank, distributed and dist.
        epochs: a number or an expression.
    """
    text = _TEXT.replace("# BEFORE", before).replace("# AFTER", after).replace("EPOCHS", epochs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
