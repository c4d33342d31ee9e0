"""An all-reduce over the ranks, measured: every size, the time of the slowest rank, and whether it was right."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lockstep.runtime.world import World

SIZES = tuple(4096 * 4**power for power in range(8))
"""Bytes: 4 KiB .. 64 MiB."""
GPU_SIZES = (*SIZES, 256 * 2**20)
BUDGET_S = 5.0
_EACH_S = 0.3
_REPEATS = 100
_WIDTH = {"cpu": 384, "cuda": 4096}  # of a matrix whose product takes some milliseconds


@dataclass(frozen=True)
class Row:
    """One size. seconds: of one all-reduce, mean of several; of the slowest rank. right: every sum was exact."""

    num_bytes: int
    seconds: float
    right: bool

    @property
    def algbw(self) -> float:
        """Bytes of the tensor per second."""
        return self.num_bytes / self.seconds

    def busbw(self, num_ranks: int) -> float:
        """Bytes per second over each link: what a ring must move, to be compared with the link's own speed."""
        return self.algbw * 2 * (num_ranks - 1) / num_ranks


def measure(world: World, sizes: tuple[int, ...] | None = None, budget_s: float = BUDGET_S) -> list[Row]:
    """Measure one size after another; the same on every rank. Stops where the next would go beyond the budget.

    Args:
        sizes: bytes, rising; None for those of the device.
    """
    rows: list[Row] = []
    began = time.perf_counter()
    for num_bytes in sizes or (GPU_SIZES if world.device.type == "cuda" else SIZES):
        spent = _slowest(world, time.perf_counter() - began)
        if rows and spent + 4 * _growth(rows, num_bytes) > budget_s:
            break
        rows.append(_row(world, num_bytes))
    return rows


def compute_s(world: World) -> float:
    """Seconds that this rank needs for a product of matrices, the best of several, while all ranks do the same."""
    width = _WIDTH[world.device.type]
    matrix = torch.ones(width, width, device=world.device)
    world.barrier()
    return min(_timed(world, lambda: matrix @ matrix) for _ in range(10))


def _row(world: World, num_bytes: int) -> Row:
    tensor = torch.empty(num_bytes // 4, device=world.device)
    tensor.fill_(world.rank + 1.0)
    world.sum(tensor)
    right = bool((tensor == world.num_ranks * (world.num_ranks + 1) / 2).all())
    tensor.zero_()  # sums of zeros stay zeros, however often
    once = _slowest(world, _timed(world, lambda: world.sum(tensor)))
    repeats = max(2, min(_REPEATS, int(_EACH_S / max(once, 1e-6))))

    def many() -> None:
        for _ in range(repeats):
            world.sum(tensor)

    seconds = _slowest(world, _timed(world, many)) / repeats
    return Row(num_bytes, seconds, _slowest(world, 0.0 if right else 1.0) == 0.0)


def _timed(world: World, work: Callable[[], object]) -> float:
    _synchronise(world)
    began = time.perf_counter()
    work()
    _synchronise(world)
    return time.perf_counter() - began


def _synchronise(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def _slowest(world: World, value: float) -> float:
    """The largest of the ranks' values: all ranks decide by the same number."""
    box = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(box, dist.ReduceOp.MAX)
    return float(box)


def _growth(rows: list[Row], num_bytes: int) -> float:
    return rows[-1].seconds * num_bytes / rows[-1].num_bytes
