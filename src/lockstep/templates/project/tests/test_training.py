"""The training is proven: on two ranks it is the training that one process does."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def lockstep(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `lockstep ...` in the project's folder."""
    command = [sys.executable, "-m", "lockstep", *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_two_ranks_are_the_same_training() -> None:
    """Same samples, same gradients, same weights; a run that is killed goes on as if nothing had been."""
    done = lockstep("verify", "config.yaml", "options.train_images=256")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS"), done.stdout


def test_a_mistake_in_the_config_is_named() -> None:
    """The same words that you would see; no rank is started."""
    done = lockstep("train", "config.yaml", "optim.lrr=1")
    assert done.returncode == 2
    assert "did you mean optim.lr?" in done.stderr
