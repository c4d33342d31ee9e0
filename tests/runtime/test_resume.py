"""A run that is cut off and resumed ends with the weights of an unbroken one; at another N it sees what was left."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lockstep.core.errors import UserError
from lockstep.runtime.state.tensors import tensors_digest
from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Images, Segment, config_of, run

# Dropout, noise, local BatchNorm, AdamW, accumulation, a schedule, clipping: all that could go on differently.
OPTIONS: dict[str, Any] = {"dropout": 0.3, "noise": 0.3, "batchnorm": True, "branches": True, "val": 10, "depth": 2}
RUN = ["precision=fp32", "stop.epochs=3", "batch.global_batch=8", "batch.accumulation=2", "optim.clip_norm=0.5"]
RUN += ["schedule.warmup_steps=3", "best.metric=val/miou", "run.threads=1", "ema.decay=0.9"]


def unbroken_and_broken(folder: Path, cuts: list[int], extra: list[str]) -> None:
    with World.enter(threads=1) as world:
        run(world, folder / "whole", OPTIONS, RUN + extra)
        for cut in [*cuts, None]:
            limit = [] if cut is None else [f"stop.max_steps={cut}"]
            run(world, folder / "cut", OPTIONS, [*RUN, *extra, *limit], resume=cut != cuts[0])


def ended(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


@pytest.mark.parametrize(
    "extra",
    [
        [],
        ["precision=fp16"],
        ["precision=bf16", "data.workers=1"],
        ["parallel.strategy=fsdp", "memory.activation_checkpointing=true"],
        ["parallel.strategy=fsdp", "precision=fp16"],
    ],
    ids=["fp32", "fp16", "workers", "fsdp", "fsdp fp16"],
)
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_resume_is_bit_exact(tmp_path: Path, num_ranks: int, extra: list[str]) -> None:
    run_ranks(unbroken_and_broken, num_ranks, tmp_path, [4, 7, 13], extra, timeout_s=120)
    whole, cut = ended(tmp_path / "whole"), ended(tmp_path / "cut")
    assert cut["resumed_at"] == 13
    assert whole["end"]["step"] == cut["end"]["step"] == 21
    assert cut["weights_digest"] == whole["weights_digest"]
    files = [tmp_path / name / "checkpoints" / "step-00000021" / "ema.safetensors" for name in ("whole", "cut")]
    assert tensors_digest(load_file(files[0])) == tensors_digest(load_file(files[1])) != whole["weights_digest"]
    assert whole["end"]["results"] == cut["end"]["results"]
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    losses = [[r["loss"] for r in map(json.loads, log) if "loss" in r] for log in logs]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 21


TARGETS = ["batch.global_targets=512", "batch.micro_targets=130", "data.bucket=4", "schedule.warmup_steps=3"]
STREAM = ["batch.global_batch=8", "batch.accumulation=2", "schedule.name=constant"]
LONG = ["precision=fp64", "stop.epochs=2", "optim.lr=0.03", "run.threads=1"]


def started(folder: Path) -> dict[str, Any]:
    """Runs whose steps are counted in targets, and of streams with a state: unbroken, and cut in mid-epoch."""
    found = {}
    with World.enter(threads=1) as world:
        for name, options, more in kinds(folder, world.rank):
            found[name] = run(world, folder / f"{name}-whole", options, LONG + more)["loss"]
            run(world, folder / f"{name}-cut", options, [*LONG, *more, "stop.max_steps=6"])
            world.barrier()
            if world.is_main:
                shutil.copytree(folder / f"{name}-cut", folder / f"{name}-same")
            world.barrier()
            run(world, folder / f"{name}-same", options, LONG + more, resume=True)
    return found


def gone_on(folder: Path, limit: list[str]) -> dict[str, tuple[list[float], int]]:
    """The losses of the cut runs, gone on with, and the items that this rank has read for it."""
    found = {}
    with World.enter(threads=1) as world:
        for name, options, more in kinds(folder, world.rank):
            Path(options.get("reads", folder / "none")).unlink(missing_ok=True)
            losses = run(world, folder / f"{name}-cut", options, [*LONG, *more, *limit], resume=True)["loss"]
            reads = Path(options.get("reads", folder / "none"))
            found[name] = losses, reads.stat().st_size if reads.exists() else 0
    return found


def kinds(folder: Path, rank: int) -> list[tuple[str, dict[str, Any], list[str]]]:
    return [
        ("targets", {"length": 120, "noise": 0.3}, TARGETS),
        ("stream", {"length": 72, "reads": str(folder / f"reads-{rank}")}, STREAM),
    ]


def test_targets_and_streams_with_a_state_go_on_at_the_same_and_at_another_n(tmp_path: Path) -> None:
    whole = run_ranks(started, 2, tmp_path, timeout_s=120)[0]
    third = run_ranks(gone_on, 3, tmp_path, ["stop.max_steps=11"])[0]
    ended_alone = run_ranks(gone_on, 1, tmp_path, [])[0]
    for name, losses in whole.items():
        assert ended(tmp_path / f"{name}-same")["weights_digest"] == ended(tmp_path / f"{name}-whole")["weights_digest"]
        assert len(losses) >= 15
        assert third[name][0] == pytest.approx(losses[:11], rel=1e-12)
        assert ended_alone[name][0] == pytest.approx(losses, rel=1e-12)
    # Cut after 6 and 11 steps of 9 and 9. A start reads one step for its rehearsal, and a state may be some steps old.
    assert 8 + (3 + 2) * 8 <= third["stream"][1] <= 8 + (3 + 2 + 3) * 8
    assert 8 + 7 * 8 <= ended_alone["stream"][1] <= 8 + (7 + 1) * 8


def gone_on_otherwise(folder: Path) -> dict[str, str]:
    """What is said of a run that is gone on with in the middle of an epoch with another config."""
    said = {}
    with World.enter(threads=1) as world:
        run(world, folder / "run", {"length": 120}, [*LONG, *TARGETS, "stop.max_steps=3"])
        for change in ("data.bucket=8", "data.bucket=null", "seed=1", "batch.global_targets=700"):
            shutil.copytree(folder / "run", folder / change)
            try:
                run(world, folder / change, {"length": 120}, [*LONG, *TARGETS, change, "stop.max_steps=5"], resume=True)
                said[change] = "fine"
            except UserError as error:
                said[change] = str(error)
    return said


def test_another_order_in_the_middle_of_an_epoch_is_refused_and_another_batch_is_not(tmp_path: Path) -> None:
    said = run_ranks(gone_on_otherwise, 1, tmp_path)[0]
    assert said.pop("batch.global_targets=700") == "fine"
    for change, text in said.items():
        assert "epoch 0 was begun with 120 samples, seed=0, data.shuffle=true, data.bucket=4" in text
        assert change.endswith("null") or change in text.partition("would go on with")[2]


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
@pytest.mark.alone
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
