#!/usr/bin/env python3
"""Samples per second of `lockstep scan`, over those of a plain DataLoader pass and of N processes that only read.

    python bench/scan.py [--images 1200] [--side 256] [--rounds 5] [--workers N] [--json build/bench-scan.json]

Three data sets: JPEG images with PNG masks in a folder (decoding decides), arrays in memory of the same size (copying
decides), and points of some bytes (whatever is done once a sample decides). The three contenders run in turn, A B C A
B C, with the same number of processes; ratios are taken round by round, and their median is shown. The time of the CPU,
of all processes together, is told as well: on a machine with other work it is the steadier number.

    scan          `lockstep scan`: read under the sample stream, batched, every value and label checked
    DataLoader    one pass with torch's DataLoader, batches of 32, one thread a worker, nothing done with them
    read only     N processes that take every N-th sample and drop it: what reading itself costs
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lockstep.recipes.points import SpiralSet
from lockstep.runtime.recipe import Batching, Labels
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.scanner import Scanner

BUDGET = 0.9
CLASSES = 21
BATCH = 32
Sample = dict[str, Tensor]


class Pictures(Dataset[Sample]):
    """JPEG images and PNG masks of one size: (3, side, side) float32 and (side, side) int64."""

    def __init__(self, folder: Path) -> None:
        self.images = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        from PIL import Image

        path = self.images[index]
        with Image.open(path) as image, Image.open(path.with_suffix(".png")) as mask:
            pixels, labels = np.asarray(image), np.asarray(mask)
        return {
            "image": torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255,
            "label": torch.from_numpy(labels.astype(np.int64)),
        }

    def where(self, index: int) -> str:
        return f"{self.images[index].name}, {self.images[index].stem}.png"


class Arrays(Dataset[Sample]):
    """The same in memory: what is left is copying."""

    def __init__(self, samples: int, side: int) -> None:
        self.images, self.labels = torch.rand(64, 3, side, side), torch.randint(CLASSES, (64, side, side))
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Sample:
        return {"image": self.images[index % 64].clone(), "label": self.labels[index % 64].clone()}


class Task(Batching):
    def labels(self, batch: Any) -> Labels:
        return Labels(batch["label"], CLASSES, 255)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--side", type=int, default=256, help="px")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="pictures, arrays, points; all by default")
    parser.add_argument("--json", default="", help="a file for the numbers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-scan-") as folder:
        for name, data in sets(args, Path(folder)):
            found[name] = [one_round(data, args.workers) for _ in range(args.rounds + 1)][
                1:
            ]  # the first warms the cache
            show(name, data, found[name], args.workers)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def sets(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Dataset[Sample]]]:
    wanted = args.only.split(",") if args.only else ["pictures", "arrays", "points"]
    if "pictures" in wanted:
        draw(folder, args.images, args.side)
        yield "pictures", Pictures(folder)
    if "arrays" in wanted:
        yield "arrays", Arrays(args.images, args.side)
    if "points" in wanted:
        yield "points", SpiralSet(50 * args.images, 3, 0.03, 0)


def draw(folder: Path, images: int, side: int) -> None:
    """Pictures with smooth content and some noise, as photographs have, and masks of blocks."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(images):
        coarse = Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).resize(
            (side, side), Image.Resampling.BICUBIC
        )
        pixels = np.asarray(coarse).astype(np.int16) + rng.integers(-12, 12, (side, side, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:05d}.jpg", quality=90)
        blocks = rng.integers(0, CLASSES, (8, 8), np.uint8).repeat(side // 8, 0).repeat(side // 8, 1)
        Image.fromarray(blocks).save(folder / f"{number:05d}.png")


def one_round(data: Dataset[Sample], workers: int) -> dict[str, dict[str, float]]:
    """Samples per second, and per second of CPU, of each contender."""
    contenders: dict[str, Callable[[Dataset[Sample], int], None]] = {
        "scan": scan,
        "DataLoader": plain,
        "read only": read_only,
    }
    speeds = {}
    for name, run in contenders.items():
        start, busy = time.perf_counter(), cpu_s()
        run(data, workers)
        seconds, length = time.perf_counter() - start, len(data)  # type: ignore[arg-type]
        speeds[name] = {"wall": length / seconds, "cpu": length / (cpu_s() - busy)}
    return speeds


def cpu_s() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def scan(data: Dataset[Sample], workers: int) -> None:
    source = Source("train", data, len(data))  # type: ignore[arg-type]
    result = Scanner("bench", [source], Task(), 0, workers, 60.0).run()
    assert not result.findings and result.splits[0].read == source.length


def plain(data: Dataset[Sample], workers: int) -> None:
    for _ in DataLoader(data, batch_size=BATCH, num_workers=workers):
        pass


def read_only(data: Dataset[Sample], workers: int) -> None:
    processes = [get_context("fork").Process(target=_read, args=(data, first, workers)) for first in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _read(data: Any, first: int, step: int) -> None:
    torch.set_num_threads(1)
    for index in range(first, len(data), step):
        data[index]


def show(name: str, data: Any, rounds: list[dict[str, dict[str, float]]], workers: int) -> None:
    print(f"\n{name}: {len(data)} samples, {workers} processes, {len(rounds)} rounds")
    for contender in rounds[0]:
        speed = statistics.median(one[contender]["wall"] for one in rounds)
        busy = statistics.median(one[contender]["cpu"] for one in rounds)
        print(f"  {contender:<12}{speed:>9.0f} samples/s{busy:>9.0f} per second of CPU", end="")
        print("" if contender == "scan" else f"   scan: {ratios(rounds, contender, 'wall')}", end="")
        print("" if contender == "scan" else f", of CPU {ratios(rounds, contender, 'cpu')}")
    ratio = statistics.median(one["scan"]["wall"] / one["DataLoader"]["wall"] for one in rounds)
    print(f"  {'met' if ratio >= BUDGET else 'missed'}: {ratio:.2f} of a plain DataLoader pass, at least {BUDGET}")


def ratios(rounds: list[dict[str, dict[str, float]]], contender: str, clock: str) -> str:
    """Median and range of what the scan reaches of a contender's speed."""
    over = [one["scan"][clock] / one[contender][clock] for one in rounds]
    return f"x {statistics.median(over):.2f} ({min(over):.2f} .. {max(over):.2f})"


if __name__ == "__main__":
    sys.exit(main())
