"""The one job that every contender runs: U-Net segmentation, fixed data, fixed batch per rank.

Sizes come from the environment, so that each contender stays a faithful, minimal use of its own library: BENCH_STEPS
(timed steps), BENCH_BATCH (samples per rank), BENCH_SIZE (image side, px), BENCH_WIDTH (U-Net base channels),
BENCH_PRECISION (fp32 | bf16). A contender calls `Clock.tick()` once after every optimizer step and `Clock.report(name)`
at the end; the name is BENCH_NAME where that is set.
"""

import itertools
import json
import os
import resource
import statistics
import time

import psutil
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

STEPS = int(os.environ.get("BENCH_STEPS", "30"))
BATCH = int(os.environ.get("BENCH_BATCH", "4"))
SIZE = int(os.environ.get("BENCH_SIZE", "96"))
WIDTH = int(os.environ.get("BENCH_WIDTH", "16"))
PRECISION = os.environ.get("BENCH_PRECISION", "fp32")
WARMUP = 5
NUM_CLASSES = 21
LR = 1e-4
SEED = 42

last: dict[str, Tensor] = {}  # where a contender that does not own its loop leaves the latest loss


def layers(cin: int, cout: int) -> list[nn.Module]:
    """One 3x3 convolution with batch norm and ReLU: (N, cin, H, W) -> (N, cout, H, W)."""
    return [nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]


class Block(nn.Sequential):
    """Two convolutions: (N, cin, H, W) -> (N, cout, H, W)."""

    def __init__(self, cin: int, cout: int) -> None:
        super().__init__(*layers(cin, cout), *layers(cout, cout))


class UNet(nn.Module):
    """(N, 3, H, W) images -> (N, classes, H, W) logits; H and W divisible by 8."""

    def __init__(self, classes: int = NUM_CLASSES, width: int = WIDTH, depth: int = 3) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(Block(3 if i == 0 else channels[i - 1], channels[i]) for i in range(depth + 1))
        self.up = nn.ModuleList(nn.ConvTranspose2d(channels[i + 1], channels[i], 2, 2) for i in range(depth))
        self.merge = nn.ModuleList(Block(2 * channels[i], channels[i]) for i in range(depth))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for level in reversed(range(len(self.merge))):
            x = self.merge[level](torch.cat([skips[level], self.up[level](x)], dim=1))
        return self.head(x)


class Scenes(Dataset[tuple[Tensor, Tensor]]):
    """Fixed random images (3, SIZE, SIZE) with labels (SIZE, SIZE), generated per index."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, SIZE, SIZE, generator=generator)
        return image, (image.sum(0) * 3).long().clamp(-10, 10) + 10


def dataset(num_ranks: int) -> Scenes:
    """Just enough samples for WARMUP + STEPS steps on every rank."""
    return Scenes((STEPS + WARMUP) * BATCH * num_ranks)


class Clock:
    """Seconds per step (median), start-up to the end of the first step, and peak memory."""

    def __init__(self) -> None:
        self.born = psutil.Process().create_time()
        self.ends: list[float] = []

    def tick(self) -> None:
        self.ends.append(time.time())

    def report(self, name: str, loss: float, num_ranks: int) -> None:
        gaps = [end - begin for begin, end in itertools.pairwise(self.ends[WARMUP - 1 :])]
        values = {
            "name": os.environ.get("BENCH_NAME", name),
            "ranks": num_ranks,
            "threads": torch.get_num_threads(),
            "steps": len(gaps),
            "step_s": round(statistics.median(gaps), 6),
            "mean_step_s": round(statistics.fmean(gaps), 6),
            "first_step_s": round(self.ends[0] - self.born, 3),
            "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "loss": round(float(loss), 5),
        }
        print("BENCH " + json.dumps(values), flush=True)
