"""`lockstep train` with trackers: those of a recipe, one that cannot be started, and a rank that is killed."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.commands import Command, lockstep

pytest.importorskip("wandb")
RUN = ["batch.global_batch=10", "log.every_steps=5", "precision=fp32", "run.threads=1", "run.dir=run"]
RUN += ["log.tensorboard=off", "--nproc", "2"]

OWN = """
from lockstep.recipes.points import Points


class Lines:
    name = "lines"

    def about(self, about):
        self._write(f"begins {about.facts['num_ranks']}")

    def record(self, step, values):
        self._write(f"step {step} {sorted(values)[0]}")

    def finish(self, ending, results):
        self._write(ending)

    def _write(self, line):
        with open("lines.txt", "a") as file:
            file.write(line + "\\n")


class Mine(Points):
    def trackers(self):
        return [Lines()]
"""


def test_a_recipe_brings_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    done = lockstep(tmp_path, "train", "recipe=mine.py:Mine", *RUN, "--max-steps", "10")
    assert done.code == 0, done.output
    lines = (tmp_path / "lines.txt").read_text().splitlines()
    assert lines[:3] == [
        "begins 2",
        "step 5 comm_share",
        "step 10 comm_share",
    ]
    assert lines[-1] == "stopped"


def test_one_that_cannot_be_started_ends_the_run_before_its_first_step(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc"), "WANDB_API_KEY": ""}
    done = lockstep(tmp_path, "train", "recipe=points", *RUN, "log.wandb=on", env=env)
    assert done.code == 2, done.output
    assert "W&B has no API key on this machine" in done.output and "Traceback" not in done.output
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_outlives_a_killed_rank(tmp_path: Path) -> None:
    run = ["recipe=points", *RUN, "log.wandb=offline", "stop.epochs=1000"]
    command = Command(tmp_path, "train", *run)
    log = tmp_path / "run" / "metrics.jsonl"
    command.until(lambda: log.exists() and log.stat().st_size > 0)
    below = psutil.Process(command.pid).children(recursive=True)
    (service,) = [one for one in below if one.name() == "wandb-core"]
    os.kill(service.ppid(), signal.SIGKILL)
    assert command.wait().code == 1
    assert not service.is_running() or service.status() == psutil.STATUS_ZOMBIE
