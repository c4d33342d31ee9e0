"""`lockstep train` that is preempted, killed or started anew by its launcher ends as the run that nobody disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep.core.outcome import Exit
from tests.commands import Command, lockstep

RECIPES = Path(__file__).with_name("bad_recipes.py")
RUN = ["recipe=points", "options.samples=600", "options.val_samples=60", "options.hidden=8", "options.dropout=0.2"]
RUN += ["batch.global_batch=10", "stop.epochs=3", "log.every_steps=7", "log.tensorboard=off", "run.threads=1"]
RUN += ["precision=fp32", "checkpoint.every_steps=10", "evaluate.every_steps=25", "checkpoint.keep_last=100"]
SECONDS = ("samples_per_s", "data_share", "comm_share", "memory_mib")


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in SECONDS} for line in lines]


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


def steps_logged(run: Path) -> int:
    log = run / "metrics.jsonl"
    steps = (
        [json.loads(line)["step"] for line in log.read_text().splitlines() if line.endswith("}")]
        if log.exists()
        else []
    )
    return max(steps, default=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The unbroken run at each N, made once."""
    made: dict[int, Path] = {}

    def run(num_ranks: int) -> Path:
        if num_ranks not in made:
            folder = tmp_path_factory.mktemp(f"whole{num_ranks}") / "here"
            done = lockstep(folder, "train", *RUN, "run.dir=run", "--nproc", str(num_ranks))
            assert done.code == 0, done.output
            made[num_ranks] = folder / "run"
        return made[num_ranks]

    return run


def check_same(run: Path, unbroken: Path) -> None:
    assert records(run) == records(unbroken)
    assert manifest(run)["weights_digest"] == manifest(unbroken)["weights_digest"]
    assert manifest(run)["end"] == manifest(unbroken)["end"]


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_same_command_again_after_a_signal(
    tmp_path: Path, whole: Callable[[int], Path], num_ranks: int, number: signal.Signals
) -> None:
    """A job that a scheduler preempts and starts again, two times."""
    folder, unbroken = tmp_path / "here", whole(num_ranks)
    argv = ["train", *RUN, "run.dir=run", "--resume-or-start", "--nproc", str(num_ranks)]
    run, begun = folder / "run", 0
    for _ in range(2):
        at = random.randint(begun + 1, begun + 60)
        command = Command(folder, *argv)
        command.until(lambda at=at: steps_logged(run) >= at)
        os.kill(command.pid, number)
        done = command.wait()
        assert done.code == Exit.PREEMPTED, done.output
        saved = manifest(run)["end"]
        assert saved["ending"] == "preempted"
        told = f"Preempted after saving step {saved['step']}: go on with `lockstep train --resume run`."
        assert done.stderr.splitlines()[-1] == told
        assert "failed" not in done.output + "".join(path.read_text() for path in (run / "logs").iterdir())
        assert "Traceback" not in done.output
        begun = saved["step"]
    done = lockstep(folder, *argv)
    assert done.code == 0, done.output
    assert f"resumed at step {begun} " in done.output
    check_same(run, unbroken)


@pytest.mark.slow
def test_one_rank_and_its_loader_workers_get_the_signal(tmp_path: Path) -> None:
    """Slurm sends it to every process of a step, and not to the launcher alone."""
    folder = tmp_path / "here"
    command = Command(folder, "train", *RUN, "run.dir=run", "stop.epochs=90", "data.workers=1", "--nproc", "2")
    command.until(lambda: steps_logged(folder / "run") >= 14)
    everyone = psutil.Process(command.pid).children(recursive=True)
    assert len(everyone) >= 4
    for process in everyone:
        process.send_signal(signal.SIGTERM)
    done = command.wait()
    assert done.code == Exit.PREEMPTED, done.output
    assert "Preempted after saving step" in done.stderr


@pytest.mark.slow
def test_torchrun_is_preempted_too(tmp_path: Path, whole: Callable[[int], Path]) -> None:
    """Its agent sends SIGTERM to each rank's group and waits for 30 s; it ends by a code of its own."""
    folder, unbroken = tmp_path / "here", whole(2)
    folder.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    argv = [*torchrun, "-m", "lockstep", "train", *RUN, "run.dir=run", "data.workers=1", "stop.epochs=3"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    run = folder / "run"
    process = subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while process.poll() is None and steps_logged(run) < 14 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None
    process.terminate()
    start = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert process.returncode not in (0, Exit.PREEMPTED)
    assert output.count("Preempted after saving step") == 1, output
    assert manifest(run)["end"]["ending"] == "preempted"
    done = lockstep(folder, "train", "--resume", "run", "data.workers=0", "--nproc", "2")
    assert done.code == 0, done.output
    check_same(run, unbroken)


@pytest.mark.slow
def test_torchrun_starts_again_where_the_run_had_saved(tmp_path: Path, whole: Callable[[int], Path]) -> None:
    folder, unbroken = tmp_path / "here", whole(2)
    folder.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    argv = [*torchrun, "--max-restarts", "1", "-m", "lockstep", "train", *RUN, "run.dir=run"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while process.poll() is None and steps_logged(folder / "run") < 28 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None
    os.kill(max(child.pid for child in psutil.Process(process.pid).children()), signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "restart 1 of 1: from step " in output
    check_same(folder / "run", unbroken)


class Killer:
    """Kills a rank each time the run has come so far."""

    def __init__(self, command: Command, run: Path, seed: int) -> None:
        self.command, self.run, self.draw = command, run, random.Random(seed)
        self.known: set[int] = set()

    def kill(self, further: int) -> int:
        """Wait for the ranks of this start to have done some more steps; the step that was reached."""
        self.command.until(lambda: self._fresh() and steps_logged(self.run) >= further)
        ranks = self._fresh()
        os.kill(self.draw.choice(sorted(ranks)), signal.SIGKILL)
        self.known |= ranks
        return steps_logged(self.run)

    def _fresh(self) -> set[int]:
        ranks = {child.pid for child in psutil.Process(self.command.pid).children()} - self.known
        return ranks if len(ranks) == 2 else set()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 3])
def test_killed_and_started_again_by_the_launcher(tmp_path: Path, whole: Callable[[int], Path], kills: int) -> None:
    """With --restarts 2: twice it goes on from the last checkpoint, the third time it ends with the verdict."""
    folder, unbroken, seed = tmp_path / "here", whole(2), random.randrange(10**6)
    command = Command(folder, "train", *RUN, "run.dir=run", "--restarts", "2", "--nproc", "2")
    killer, draw, reached = Killer(command, folder / "run", seed), random.Random(seed), 0
    for _ in range(kills):
        reached = killer.kill(reached + draw.randint(12, 35))
    done = command.wait()
    said = [line for line in done.output.splitlines() if line.startswith("restart ")]
    assert [line.split(":")[0] for line in said] == ["restart 1 of 2", "restart 2 of 2"], done.output
    # The first kill may come before the first checkpoint is on disk.
    assert all(line.endswith(("0", "5", "from the beginning")) for line in said), said
    if kills == 3:
        assert done.code == Exit.FAILED, (seed, done.output)
        assert "was killed by SIGKILL" in done.stderr
        done = lockstep(folder, "train", "--resume", "run", "--nproc", "2")
    assert done.code == 0, (seed, done.output)
    check_same(folder / "run", unbroken)


@pytest.mark.slow
def test_with_fewer_ranks_after_a_failure(tmp_path: Path, whole: Callable[[int], Path]) -> None:
    folder, unbroken = tmp_path / "here", whole(2)
    command = Command(folder, "train", *RUN, "run.dir=run", "--nproc", "2")
    Killer(command, folder / "run", 0).kill(21)
    assert command.wait().code == Exit.FAILED
    done = lockstep(folder, "train", "--resume", "run", "--nproc", "1")
    assert done.code == 0, done.output
    run = folder / "run"
    assert manifest(run)["num_ranks"] == 1 and manifest(run)["resumed_at"] > 0
    assert [(one["step"], "loss" in one) for one in records(run)] == [
        (one["step"], "loss" in one) for one in records(unbroken)
    ]


@pytest.mark.slow
def test_a_mistake_is_not_started_again(tmp_path: Path) -> None:
    done = lockstep(tmp_path / "here", "train", *RUN, "optim.lr=-1", "--restarts", "2", "--nproc", "2")
    assert done.code == Exit.MISUSE
    done = lockstep(tmp_path / "here", "train", *RUN, "best.metric=val/none", "--restarts", "2", "--nproc", "2")
    assert done.code == Exit.MISUSE and "restart" not in done.output.lower(), done.output


def test_resume_or_start_needs_a_folder(tmp_path: Path) -> None:
    done = lockstep(tmp_path / "here", "train", *RUN, "--resume-or-start", "--nproc", "1")
    assert done.code == Exit.MISUSE and "set run.dir=FOLDER" in done.stderr
    (tmp_path / "here" / "run").mkdir()
    (tmp_path / "here" / "run" / "config.yaml").write_text("recipe: points\n")
    done = lockstep(tmp_path / "here", "train", "--resume", "run", "--resume-or-start", "--nproc", "1")
    assert done.code == Exit.MISUSE and "both --resume and --resume-or-start" in done.stderr
