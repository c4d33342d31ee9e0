"""A process group that is taken down stays in memory for a while: torch may deadlock on freeing it.

A wrapped model holds its group too. If it is the last to do so, as where `main` returns right after
`destroy_process_group`, torch joins gloo's threads while it holds Python's lock (GIL); a thread that still frees the
last all_reduce of a backward waits for that lock (torch 2.13: `~ProcessGroupGloo` in `~Reducer`, `~AsyncWork`).
Freed from Python instead, the group lets go of the lock first.
"""

from collections import deque
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

_kept: deque[list[Any]] = deque(maxlen=8)


def keep_group(group: Any = None) -> None:
    """To be called before a group (None: all) is taken down: it lives on, until many others have been."""
    if dist.is_initialized():
        everything = group in (None, dist.group.WORLD)
        _kept.append(list(c10d._world.pg_map) if everything else [group])
