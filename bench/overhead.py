#!/usr/bin/env python3
"""What it costs to be watched and to be recorded: the step of hand-written DDP alone, under `lockstep run`, and under
`lockstep run --record`, by the same launcher.

    python bench/overhead.py [--rounds 3] [--steps 40]

Two jobs, a U-Net and a step so small that every microsecond shows, on 2 ranks, in turn A B C A B C ...; the median step
of each and the median of the rounds' ratios are printed.
"""

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from lockstep.launch import launch_local

BUDGET = 1.05
SCRIPT = Path(__file__).resolve().parent / "peers" / "raw_ddp.py"
JOBS = {"U-Net": {}, "tiny step": {"BENCH_SIZE": "16", "BENCH_WIDTH": "4"}}
PLAIN = [sys.executable, __file__, "--alone"]
LOCKSTEP = [sys.executable, "-m", "lockstep"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=40, help="timed steps of the U-Net; the tiny step has ten times more"
    )
    parser.add_argument("--alone", action="store_true", help="run the job once, unrecorded, by the same launcher")
    args = parser.parse_args()
    if args.alone:
        with tempfile.TemporaryDirectory() as folder:
            return int(launch_local(alone, (), 2, work_dir=Path(folder)))
    for name, env in JOBS.items():
        steps = args.steps * (10 if name == "tiny step" else 1)
        ratios: dict[str, list[float]] = {"watched": [], "recorded": []}
        for _ in range(args.rounds):
            plain = step_s(PLAIN, {**env, "BENCH_STEPS": str(steps)})
            shown = [f"{plain * 1e3:.2f} ms alone"]
            for manner, found in ratios.items():
                with tempfile.TemporaryDirectory() as folder:
                    option = "--record" if manner == "recorded" else "--log-dir"
                    command = [*LOCKSTEP, "run", option, folder, "--nproc", "2", str(SCRIPT)]
                    took = step_s(command, {**env, "BENCH_STEPS": str(steps)})
                found.append(took / plain)
                shown.append(f"{took * 1e3:.2f} ms {manner}")
            print(f"{name}: {', '.join(shown)}", flush=True)
        for manner, found in ratios.items():
            ratio = statistics.median(found)
            met = "met" if ratio <= BUDGET else "missed"
            print(f"{name}, {manner}: ratio {ratio:.3f}, at most {BUDGET}: {met}", flush=True)
    return 0


def alone() -> None:
    """One rank: the script, with the thread that the recorded one has."""
    torch.set_num_threads(1)
    sys.path.insert(0, str(SCRIPT.parent))
    runpy.run_path(str(SCRIPT), run_name="__main__")


def step_s(command: list[str], env: dict[str, str]) -> float:
    """Median seconds a step, as the script itself measures it."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    line = next((one for one in done.stdout.splitlines() if one.startswith("BENCH ")), None)
    if done.returncode or line is None:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return float(json.loads(line.removeprefix("BENCH "))["step_s"])


if __name__ == "__main__":
    sys.exit(main())
