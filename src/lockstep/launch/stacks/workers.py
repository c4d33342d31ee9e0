"""What the DataLoader workers of a rank do: a rank that waits for data is explained by them."""

from pathlib import Path

import psutil

from lockstep.launch.stacks.read import read_stacks
from lockstep.launch.stacks.stack import Stack

_LOOP = ("torch/utils/data/_utils/worker.py", "_worker_loop")
_FETCH = ("torch/utils/data/_utils/fetch.py", "fetch")


def worker_stacks(pid: int, timeout_s: float = 3.0, fallback: Path | None = None) -> dict[int, Stack]:
    """The stacks of the DataLoader workers of a process, in the order in which they were started.

    Args:
        pid: the rank.
        timeout_s: how long it may take, in seconds.
        fallback: the file that the rank has given to `arm`; workers that it has forked write there too.
    """
    try:
        children = sorted(
            psutil.Process(pid).children(recursive=True), key=lambda child: (child.create_time(), child.pid)
        )
    except psutil.Error:
        return {}
    pids = [child.pid for child in children]
    found = read_stacks(pids, timeout_s, dict.fromkeys(pids, fallback) if fallback else {})
    return {child: stack for child, stack in found.items() if is_worker(stack)}


def at_work(stack: Stack) -> bool:
    """Whether a worker is making a batch; one that is not waits for its next indices, or for room for its batch."""
    return any((frame.file[-len(_FETCH[0]) :], frame.function) == _FETCH for frame in stack.main)


def is_worker(stack: Stack) -> bool:
    """Whether the process is a DataLoader worker."""
    return any((frame.file[-len(_LOOP[0]) :], frame.function) == _LOOP for frame in stack.main)
