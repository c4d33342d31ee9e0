#!/usr/bin/env python3
"""Lockstep beside hand-written DDP and its peers, on one machine, in one run.

    python bench/run.py [--quick] [--jobs unet,tiny] [--only raw-ddp,lockstep] [--rounds 3] [--ranks 2]
                        [--also 'NAME=COMMAND'] [--json build/bench.json]

Contenders run in turn, A B C A B C ..., each launched by torchrun on CPU; ratios are taken round by round and their
median is shown, so a drifting machine does not decide the order. OMP_NUM_THREADS is cores // ranks for everyone unless
the environment sets it. `--also` adds any command that prints one BENCH line (see peers/common.py). Run it on a quiet
machine: a second load makes every number meaningless.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from jobs import BASE, CONTENDERS, JOBS, Job, has_bf16

PEERS = Path(__file__).resolve().parent / "peers"
ROOT = PEERS.parents[1]
TIMEOUT_S = 600
QUICK = {"BENCH_STEPS": "5"}
COLUMNS = ("step_s", "first_step_s", "rss_mib", "loss")
Result = dict[str, float]
Round = dict[str, Result | None]


def main() -> int:
    args = arguments()
    bf16 = has_bf16()
    names = [name for name in args.jobs.split(",") if bf16 or name != "unet-bf16"]
    print(f"{cores()} cores, {args.ranks} ranks of {threads(args.ranks)} threads, {platform.machine()}", end="")
    print("" if bf16 else "; bf16 left out: this CPU does not compute it in hardware")
    report = {}
    try:
        for name in names:
            job = JOBS[name]
            commands = chosen(job, args, bf16)
            rounds = [one_round(commands, args) for _ in range(args.rounds)]
            report[name] = {"rows": table(job, rounds), "budgets": budgets(job, rounds), "rounds": rounds}
    except KeyboardInterrupt:
        return 130
    if args.json:
        path = Path(args.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
        print(f"\nnumbers: {path}")
    failed = sorted({name for job in report.values() for name, row in job["rows"].items() if row is None})
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default=",".join(JOBS), help="which tables: %(default)s")
    parser.add_argument("--only", default="", help="contenders, comma-separated; raw-ddp always runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--quick", action="store_true", help="5 steps, one round: does everything run at all?")
    parser.add_argument("--json", default=str(ROOT / "build" / "bench.json"), help="'' for none")
    args = parser.parse_args()
    unknown = ({*args.jobs.split(",")} - JOBS.keys()) | ({*filter(None, args.only.split(","))} - CONTENDERS.keys())
    if unknown:
        parser.error(f"not known: {sorted(unknown)}; jobs: {', '.join(JOBS)}; contenders: {', '.join(CONTENDERS)}")
    args.rounds = 1 if args.quick else args.rounds
    return args


def cores() -> int:
    return len(os.sched_getaffinity(0))


def threads(ranks: int) -> str:
    return os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // ranks)))


def chosen(job: Job, args: argparse.Namespace, bf16: bool) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Command and environment of every contender of a job, in the order in which they run."""
    only = {*filter(None, args.only.split(",")), BASE} if args.only else set(job.contenders)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(args.ranks)]
    shared = {**os.environ, **job.env, **(QUICK if args.quick else {}), "OMP_NUM_THREADS": threads(args.ranks)}
    shared["PYTHONPATH"] = os.pathsep.join([str(PEERS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    commands = {}
    for name in job.contenders:
        if name in only and (bf16 or name != "lockstep-bf16"):
            one = CONTENDERS[name]
            script = str(PEERS / f"{one.script}.py")
            commands[name] = ([*torchrun, script], {**shared, **one.env, "BENCH_NAME": name})
    for name, _, command in (item.partition("=") for item in args.also):
        commands[name] = (shlex.split(command), shared)
    return commands


def one_round(commands: dict[str, tuple[list[str], dict[str, str]]], args: argparse.Namespace) -> Round:
    results: Round = {}
    for name, (command, env) in commands.items():
        if sys.stderr.isatty():
            print(f"\r{name:<20}", end="", file=sys.stderr, flush=True)
        results[name] = measure(command, env)
    if sys.stderr.isatty():
        print("\r" + " " * 20 + "\r", end="", file=sys.stderr, flush=True)
    return results


def measure(command: list[str], env: dict[str, str]) -> Result | None:
    """Run one contender and read its BENCH line; None, and why on stderr, where there is none."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        env = {**env, "BENCH_DIR": folder}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True) as run:
            try:
                out, err = run.communicate(timeout=TIMEOUT_S)
            except BaseException as error:
                os.killpg(run.pid, signal.SIGKILL)  # torchrun and its ranks
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                out, err = "", f"no end after {TIMEOUT_S} s"
    lines = [line for line in out.splitlines() if "BENCH {" in line]
    if not lines:
        print(f"no result from {' '.join(command)}\n{err[-3000:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1].split("BENCH ", 1)[1])


def ratio(rounds: list[Round], over: str, under: str) -> float | None:
    """Median over the rounds of step time by step time."""
    pairs = [(one.get(over), one.get(under)) for one in rounds]
    ratios = [a["step_s"] / b["step_s"] for a, b in pairs if a and b]
    return statistics.median(ratios) if ratios else None


def table(job: Job, rounds: list[Round]) -> dict[str, dict[str, float | None] | None]:
    """Print a job's table and return its rows; a failed contender has None."""
    print(f"\n{job.title}\n{'contender':<18}{'step ms':>9}{'x ' + BASE:>11}{'x no-comm':>11}", end="")
    print(f"{'first step s':>14}{'RSS MiB':>9}{'loss':>9}")
    rows: dict[str, dict[str, float | None] | None] = {}
    for name in rounds[0]:
        results = [found for one in rounds if (found := one[name])]
        if not results:
            print(f"{name:<18}{'failed':>9}")
            rows[name] = None
            continue
        median = {
            key: statistics.median(one[key] for one in results) for key in ("step_s", "first_step_s", "rss_mib", "loss")
        }
        limit = CONTENDERS[name].limit if name in CONTENDERS else "no-comm"
        ratios = {"x_raw": ratio(rounds, name, BASE), "x_no_comm": ratio(rounds, name, limit)}
        rows[name] = {**median, **ratios}
        print(
            f"{name:<18}{median['step_s'] * 1e3:>9.1f}{shown(ratios['x_raw']):>11}{shown(ratios['x_no_comm']):>11}",
            end="",
        )
        print(f"{median['first_step_s']:>14.2f}{median['rss_mib']:>9.0f}{median['loss']:>9.4f}")
    return rows


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def budgets(job: Job, rounds: list[Round]) -> list[dict[str, object]]:
    """Print what the job is held to, and return it."""
    rows = []
    for budget in job.budgets:
        got = ratio(rounds, budget.over, budget.under)
        verdict = "not measured" if got is None else "met" if got <= budget.most else "missed"
        values = f"{budget.over} / {budget.under} = {shown(got)}, at most {budget.most:.3f}"
        print(f"  {verdict:<13}{budget.what}: {values}")
        rows.append({"what": budget.what, "got": got, "most": budget.most, "verdict": verdict})
    return rows


if __name__ == "__main__":
    sys.exit(main())
