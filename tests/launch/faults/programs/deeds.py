"""What goes wrong, on one rank. The line that a verdict has to name ends in a comment: an arrow and a name."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

STEP = 20
"""Optimizer steps before it happens."""
BATCH = 10


def at_fault() -> bool:
    """Whether this is the rank that it happens to."""
    return os.environ["RANK"] == os.environ["FAULT_RANK"]


def strike(name: str) -> None:
    """Say when, and do it."""
    say()
    DEEDS[name]()


def say(what: str = "injected") -> None:
    beside = Path(os.environ["FAULT_FOLDER"], f".{what}-{os.environ['RANK']}")
    beside.write_text(f"{time.time()} {os.getpid()}")
    beside.rename(beside.with_name(beside.name[1:]))


def raises() -> None:
    raise ValueError("label 12 is outside the 11 classes")  # <- raises


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def worker_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def worker_waits() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # <- worker_waits


def out_of_memory() -> None:
    kept = []
    while True:
        kept.append(torch.ones(4 << 20))


def segfault() -> None:
    ctypes.string_at(0)  # <- segfault


def leaves_with_0() -> None:
    os._exit(0)  # <- leaves_with_0


def leaves_with_3() -> None:
    os._exit(3)  # <- leaves_with_3


def sys_exit_0() -> None:
    sys.exit(0)  # <- sys_exit_0


def aborts() -> None:
    os.abort()  # <- aborts


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)  # <- stopped


def spins() -> None:
    while True:  # <- spins
        pass  # <- spins


def holds_the_gil() -> None:
    ctypes.PyDLL(None).pause()  # <- holds_the_gil


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # <- waits_for_a_lock


def reduces_alone() -> None:
    dist.all_reduce(torch.zeros(1))  # <- reduces_alone


def evaluates_for_ever() -> None:
    time.sleep(1000)  # <- evaluates_for_ever


def together(name: str) -> None:
    """A collective that every rank calls, and one of them in another way."""
    if at_fault():
        say()
    if at_fault() and name == "calls_another":
        dist.broadcast(torch.zeros(4), 0)  # <- calls_another
    elif at_fault() and name == "other_size":
        dist.all_reduce(torch.zeros(5))  # <- other_size
    else:
        dist.all_reduce(torch.zeros(4))


class Data(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Points and their sums. With a fault, one sample does it in the worker that loads it, at the rank at fault."""

    def __init__(self, points: int = 4000, fault: str = "", at: int = -1) -> None:
        self.points = torch.randn(points, 8, generator=torch.Generator().manual_seed(0))
        self.fault, self.at, self.loaded = fault, at, 0

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        self.loaded += 1
        if self.fault and self.loaded == self.at and at_fault():
            strike(self.fault)
        return {"point": self.points[index], "label": self.points[index].sum(0, keepdim=True)}


DEEDS: dict[str, Callable[[], None]] = {
    deed.__name__: deed
    for deed in (
        raises,
        killed,
        out_of_memory,
        worker_killed,
        worker_waits,
        segfault,
        leaves_with_0,
        leaves_with_3,
        sys_exit_0,
        aborts,
        stopped,
        spins,
        holds_the_gil,
        waits_for_a_lock,
        reduces_alone,
        evaluates_for_ever,
    )
}
TOGETHER = ("calls_another", "other_size")
IN_WORKER = ("worker_killed", "worker_waits")
IN_LOOP = frozenset(DEEDS) - {*IN_WORKER, "evaluates_for_ever"}


def lines_of(name: str) -> list[str]:
    """Each `file.py:12` of a deed; none where it has no line of its own."""
    found = []
    for file in ("deeds.py", "victim.py", "faulty.py"):
        for number, line in enumerate(Path(__file__).with_name(file).read_text(encoding="utf-8").split("\n"), 1):
            if line.endswith(f"# <- {name}"):
                found.append(f"{file}:{number}")
    return found
