#!/usr/bin/env python3
"""Memory and step time of the ways to share one model among ranks: copies (DDP), shards (FSDP2), recomputed blocks.

    python bench/memory.py [--width 768] [--layers 8] [--nproc 2] [--steps 4] [--rounds 1]

A transformer trains on the docstrings of Python's library. For each way, ranks of their own take a few steps, in turn
A B C A B C ...; printed is the most memory that rank 0 took during its steps beyond what it had before there was a
model, the median step, and both over those of DDP.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from lockstep.launch import launch_local
from lockstep.recipes.docstrings import Docstrings
from lockstep.runtime.config import load_config
from lockstep.runtime.session import build_session
from lockstep.runtime.step import MicroBatch
from lockstep.runtime.streams import seed_rank_step
from lockstep.runtime.world import World

RECOMPUTED = "memory.activation_checkpointing=true"
SHARDS = "parallel.strategy=fsdp"
WAYS = {
    "DDP": [],
    "DDP, blocks recomputed": [RECOMPUTED],
    "FSDP2": [SHARDS],
    "FSDP2, blocks stay gathered": [SHARDS, "parallel.reshard_after_forward=false"],
    "FSDP2, the model as one": [SHARDS, "parallel.blocks=[]"],
    "FSDP2, blocks recomputed": [SHARDS, RECOMPUTED],
}
COMMON = ["recipe=docstrings", "precision=fp32", "batch.global_targets=null", "data.bucket=null", "optim.clip_norm=1"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="samples of each rank")
    parser.add_argument("--steps", type=int, default=4, help="timed steps; one goes before them")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    rounds = [{name: measured(args, more) for name, more in WAYS.items()} for _ in range(args.rounds)]
    params = rounds[0]["DDP"]["params"] / 1e6
    print(f"{params:.0f} M parameters, {args.nproc} ranks, {args.batch} samples of up to 256 bytes on each")
    for name in WAYS:
        mib, step_s = (statistics.median(one[name][key] for one in rounds) for key in ("mib", "step_s"))
        over = [
            statistics.median(one[name][key] / one["DDP"][key] for one in rounds if one["DDP"][key])
            for key in ("mib", "step_s")
        ]
        print(f"{name:28} {mib:7.0f} MiB ({over[0]:.2f} of DDP)   {step_s:6.2f} s a step ({over[1]:.2f})")
    return 0


def measured(args: argparse.Namespace, more: list[str]) -> dict[str, float]:
    """What rank 0 found in one run of its own."""
    options = [f"options.width={args.width}", f"options.layers={args.layers}", "options.heads=8", "options.context=256"]
    overrides = [*COMMON, *options, f"batch.global_batch={args.batch * args.nproc}", *more]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        done = launch_local(steps, (overrides, args.steps, out), args.nproc, work_dir=Path(folder))
        if done:
            raise SystemExit(int(done))
        found: dict[str, float] = json.loads(out.read_text())
    print(f"  {' '.join(more) or 'DDP'}: {found['mib']:.0f} MiB, {found['step_s']:.2f} s", file=sys.stderr)
    return found


def steps(overrides: list[str], count: int, out: Path) -> None:
    """One rank: its session, and some steps of it."""
    torch.set_num_threads(1)
    config = load_config(None, overrides)
    with World.enter("cpu", 1) as world:
        torch.ones(256, 256) @ torch.ones(256, 256)  # what the first product allocates is no model's
        before = status_kib("VmRSS")
        session = build_session(Docstrings(**config.options), config, world, None)
        batches = session.train.epoch(0)
        times = []
        for number in range(count + 1):
            host = next(batches)
            micro = MicroBatch(host, session.on_device(host))
            if number == 1:
                Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            world.barrier()
            start = time.perf_counter()
            seed_rank_step(0, world.rank, number)
            session.step.run([micro])
            times.append(time.perf_counter() - start)
        if world.is_main:
            mib = (status_kib("VmHWM") - before) / 1024
            params = sum(param.numel() for param in session.model.parameters())
            out.write_text(json.dumps({"mib": mib, "step_s": statistics.median(times[1:]), "params": params}))
        session.replica.close()


def status_kib(name: str) -> int:
    """A line of this process's status, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


if __name__ == "__main__":
    # Freed blocks go back to the system at once: what counts is what is held, not what the allocator keeps for later.
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"})
    sys.exit(main())
