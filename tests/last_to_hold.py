"""A script's end that made torch deadlock: the group is taken down before the model that holds it is freed."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def threads_of_gloo() -> int:
    """Of this process: a group has some as long as it is in memory."""
    return sum("gloo" in (task / "comm").read_text() for task in Path("/proc/self/task").iterdir())


def leave_before_the_model(part: bool = False) -> int:
    """As a script whose `main` ends with `destroy_process_group`. Returns the threads of gloo that are left.

    part: the model is wrapped over a group of its own, which goes with the default one.
    """
    _main(part)
    return threads_of_gloo()


def _main(part: bool) -> None:
    store = torch._C._distributed_c10d.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(2, 1), process_group=dist.new_group([0]) if part else None)
    model(torch.ones(1, 2)).sum().backward()
    dist.destroy_process_group()
