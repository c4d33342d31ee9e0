"""A run that is cut off and resumed ends with the weights of an unbroken one; at another N it sees what was left."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Images, Segment, config_of, run

# Dropout, noise, local BatchNorm, AdamW, accumulation, a schedule, clipping: all that could go on differently.
OPTIONS: dict[str, Any] = {"dropout": 0.3, "noise": 0.3, "batchnorm": True, "branches": True, "val": 10}
RUN = ["precision=fp32", "stop.epochs=3", "batch.global_batch=8", "batch.accumulation=2", "optim.clip_norm=0.5"]
RUN += ["schedule.warmup_steps=3", "best.metric=val/miou", "run.threads=1"]


def unbroken_and_broken(folder: Path, cuts: list[int], extra: list[str]) -> None:
    with World.enter(threads=1) as world:
        run(world, folder / "whole", OPTIONS, RUN + extra)
        for cut in [*cuts, None]:
            limit = [] if cut is None else [f"stop.max_steps={cut}"]
            run(world, folder / "cut", OPTIONS, [*RUN, *extra, *limit], resume=cut != cuts[0])


def ended(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


@pytest.mark.parametrize(
    "extra", [[], ["precision=fp16"], ["precision=bf16", "data.workers=1"]], ids=["fp32", "fp16", "workers"]
)
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_resume_is_bit_exact(tmp_path: Path, num_ranks: int, extra: list[str]) -> None:
    run_ranks(unbroken_and_broken, num_ranks, tmp_path, [4, 7, 13], extra, timeout_s=120)
    whole, cut = ended(tmp_path / "whole"), ended(tmp_path / "cut")
    assert cut["resumed_at"] == 13
    assert whole["end"]["step"] == cut["end"]["step"] == 21
    assert cut["weights_digest"] == whole["weights_digest"]
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    losses = [[r["loss"] for r in map(json.loads, log) if "loss" in r] for log in logs]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 21


class Watched(Images):
    """Writes down every index that is read for training."""

    def __init__(self, length: int, seen: Path) -> None:
        super().__init__(length)
        self.seen = seen

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        with self.seen.open("a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)


class WatchedTask(Segment):
    def __init__(self, seen: Path) -> None:
        super().__init__()
        self.seen = seen

    def train_data(self) -> Images:
        return Watched(52, self.seen)


def watched(folder: Path, seen: Path, limit: int | None, resume: bool) -> None:
    seen.mkdir(exist_ok=True)
    limits = [] if limit is None else [f"stop.max_steps={limit}"]
    with World.enter(threads=1) as world:
        config = config_of("batch.global_batch=12", "stop.epochs=1", "parallel.find_unused=off", *limits)
        fit(WatchedTask(seen / str(world.rank)), config, world, folder, resume)


def read_in(seen: Path, rehearsed: int) -> list[int]:
    """The indices that the ranks read, without those of the rehearsal at the start of each."""
    return [int(line) for path in seen.iterdir() for line in path.read_text().split()[rehearsed:]]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 3), (3, 2), (2, 4)])
def test_another_n_sees_exactly_what_was_left(tmp_path: Path, before: int, after: int) -> None:
    run_ranks(watched, before, tmp_path / "run", tmp_path / "first", 2, False)
    run_ranks(watched, after, tmp_path / "run", tmp_path / "second", None, True)
    first = read_in(tmp_path / "first", 12 // before)
    second = read_in(tmp_path / "second", 12 // after)
    assert len(first) == 24
    assert sorted(first + second) == list(range(52))


def command(folder: Path, num_ranks: int, *more: str) -> list[str]:
    overrides = [
        "recipe=points",
        "options.dropout=0.2",
        "stop.epochs=2",
        "log.every_steps=1",
        "checkpoint.every_steps=3",
    ]
    overrides += ["precision=fp32", "log.tensorboard=off", "run.threads=1"]
    return [sys.executable, "-m", "lockstep", "train", *more, *overrides, "--nproc", str(num_ranks)]


def kill_when_at(folder: Path, process: "subprocess.Popen[str]", step: int, whom: str) -> None:
    log = folder / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if log.exists() and log.read_text().count("\n") >= step:
            break
        time.sleep(0.01)
    assert process.poll() is None, "the run ended before it could be killed"
    os.kill(process.pid if whom == "launcher" else rank_process(process.pid), signal.SIGKILL)


def rank_process(launcher: int) -> int:
    import psutil

    return int(max(child.pid for child in psutil.Process(launcher).children()))


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_killed_and_resumed(tmp_path: Path, num_ranks: int) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(command(whole, num_ranks, f"run.dir={whole}"), check=True, capture_output=True, text=True)
    steps = json.loads((whole / "manifest.json").read_text())["end"]["step"]
    step, whom = random.randint(5, steps - 10), random.choice(["launcher", "rank"])
    process = subprocess.Popen(
        command(cut, num_ranks, f"run.dir={cut}"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    kill_when_at(cut, process, step, whom)
    start = time.monotonic()
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - start < 5
    assert process.returncode != 0
    again = command(cut, num_ranks, "--resume", str(cut))
    subprocess.run(again, check=True, capture_output=True, text=True)
    assert ended(cut)["weights_digest"] == ended(whole)["weights_digest"], (step, whom, output)
    assert ended(cut)["resumed_at"] > 0
