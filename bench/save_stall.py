#!/usr/bin/env python3
"""How long a training step waits for a checkpoint: written in the background, against written at once.

    python bench/save_stall.py [--mib 200] [--rounds 5] [--folder DIR]

One model of the given size with AdamW's two moments is saved in turn by both ways, A B A B ...; the median of each and
their ratio are printed. What counts is the time until the step may go on; the write itself may take as long as it
likes.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from lockstep.runtime.config import CheckpointConfig, OptimConfig, ScheduleConfig
from lockstep.runtime.optim import build_optimizer, build_schedule
from lockstep.runtime.state.position import Position
from lockstep.runtime.state.saver import Saver, State

BUDGET = 0.10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=200, help="size of the weights; the optimizer has twice as much")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None, help="where to write; default: the folder for temporary files")
    args = parser.parse_args()
    side = int((args.mib * 2**20 / 4 / 8) ** 0.5)
    model = nn.Sequential(*(nn.Linear(side, side, bias=False) for _ in range(8)))
    optimizer = build_optimizer(model, OptimConfig(), lr=1e-3)
    schedule = build_schedule(optimizer, ScheduleConfig(), 1000, 1.0)
    model(torch.randn(1, side)).sum().backward()
    optimizer.step()
    state = State(model, optimizer, schedule, torch.amp.GradScaler("cpu", enabled=False))
    times: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        savers = {
            kind: Saver(Path(folder) / str(kind), CheckpointConfig(asynchronous=kind), {}, acts=True) for kind in times
        }
        for step in range(args.rounds + 1):
            for asynchronous, saver in savers.items():
                seconds = save_s(saver, state, step)
                if step:  # the first round touches the memory for the first time
                    times[asynchronous].append(seconds)
    at_once, behind = (statistics.median(times[kind]) for kind in (False, True))
    ratios = [b / a for a, b in zip(times[False], times[True], strict=True)]
    print(f"weights {args.mib:g} MiB: a step waits {at_once * 1e3:.0f} ms, in the background {behind * 1e3:.0f} ms")
    verdict = "met" if statistics.median(ratios) <= BUDGET else "missed"
    print(f"{verdict}: ratio {statistics.median(ratios):.3f}, at most {BUDGET}")
    return 0


def save_s(saver: Saver, state: State, step: int) -> float:
    """Seconds until the training may go on."""
    start = time.perf_counter()
    saver.save(state, Position(step=step))
    seconds = time.perf_counter() - start
    saver.close(ending_well=True)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
