from pathlib import Path

import pytest

from tests.commands import lockstep


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.mark.parametrize("verb", ["slurm", "kubernetes", "status", "logs"])
def test_every_word_is_explained(folder: Path, verb: str) -> None:
    done = lockstep(folder, "submit", verb, "--help")
    assert done.code == 0 and "Usage: lockstep submit" in done.stdout


def test_slurm_every_option_reaches_the_script(folder: Path) -> None:
    words = ["--nodes", "3", "--gpus-per-node", "2", "--nproc", "4", "--cpus-per-node", "24", "--mem", "64G"]
    words += ["--time", "1-12", "--partition", "gpu", "--account", "lab", "--name", "my-run", "--output", "out/a"]
    words += [
        "--signal-s",
        "300",
        "--max-requeues",
        "7",
        "--restarts",
        "2",
        "--setup",
        "module load cuda",
        "--sbatch=--qos=high",
    ]
    done = lockstep(folder, "submit", "slurm", "recipe=points", *words, "--dry-run")
    assert done.code == 0, done.output
    for line in (
        "#SBATCH --nodes=3",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --cpus-per-task=24",
        "#SBATCH --mem=64G",
        "#SBATCH --time=1-12",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=lab",
        "#SBATCH --job-name=my-run",
        "#SBATCH --output=out/a/my-run-%j.txt",
        "#SBATCH --signal=B:USR1@300",
        "#SBATCH --qos=high",
        "module load cuda",
        "  dir: out/a",
    ):
        assert f"\n{line}\n" in done.stdout, line
    assert "--nproc 4 --restarts 2 out/a/job.yaml" in done.stdout and "-lt 7 ]" in done.stdout


def test_kubernetes_a_variable_without_a_value(folder: Path) -> None:
    words = ["recipe=points", "--image", "i", "--pvc", "p", "--nproc", "1", "--env", "A", "--dry-run"]
    done = lockstep(folder, "submit", "kubernetes", *words)
    assert done.code == 2 and "--env A" in done.stderr and "NAME=VALUE" in done.stderr
