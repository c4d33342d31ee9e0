"""The batch script, run by bash with stand-ins for Slurm's commands; tests/test_submit.py gives it to a real Slurm."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstep.jobs.slurm import SlurmWants, batch_script
from lockstep.jobs.wants import Program, Wants

TRAIN = Program("train", ("runs/a/job.yaml", "--resume-or-start"), "runs/a", "recipe: points\n")


def options(text: str) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")}


def test_slurm_options_of_a_job() -> None:
    wants = Wants("my-run", nodes=2, gpus=4, cpus=32)
    slurm = SlurmWants("01:00:00", "gpu", "lab", "64G", 90, extra=("--qos=high",))
    assert options(batch_script(TRAIN, wants, slurm, "/home/me/a folder")) == {
        "--job-name=my-run",
        '--chdir="/home/me/a folder"',
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=4",
        "--cpus-per-task=32",
        "--mem=64G",
        "--time=01:00:00",
        "--partition=gpu",
        "--account=lab",
        "--signal=B:USR1@90",
        "--open-mode=append",
        "--output=runs/a/my-run-%j.txt",
        "--requeue",
        "--qos=high",
    }


def test_slurm_what_is_not_asked_for_is_left_to_the_cluster() -> None:
    said = options(batch_script(TRAIN, Wants("a"), SlurmWants(), "/home/me"))
    assert not [one for one in said if one.startswith(("--time", "--partition", "--account", "--mem", "--gpus"))]


def test_slurm_one_launcher_on_each_node() -> None:
    text = batch_script(
        TRAIN, Wants("a", nodes=2, ranks=3, cpus=6), SlurmWants(setup=("module load cuda",)), "/home/me"
    )
    assert "srun --ntasks-per-node=1 --cpus-per-task=6 --kill-on-bad-exit=0" in text
    assert f"{sys.executable} -m lockstep train --nproc 3 runs/a/job.yaml --resume-or-start" in text
    assert text.index("module load cuda") < text.index("srun")
    assert "--nproc" not in batch_script(TRAIN, Wants("a", gpus=2), SlurmWants(), "/home/me")


def test_slurm_a_script_keeps_its_words_and_its_logs() -> None:
    script = Program("run", ("train it.py", "--lr", "$LR"), "runs/b")
    text = batch_script(script, Wants("b", gpus=1), SlurmWants(), "/home/me")
    assert "lockstep run --log-dir runs/b/logs 'train it.py' --lr '$LR'" in text
    assert "cat >" not in text


class Stage:
    """A folder with stand-ins for `srun` and `scontrol`, which note how they are called."""

    def __init__(self, folder: Path, srun: str, state: str = "JobState=RUNNING Reason=None") -> None:
        self.folder = folder
        (folder / "runs" / "a").mkdir(parents=True)
        scontrol = f'[ "$2" = show ] && echo "JobId=7 {state} Requeue=1" || echo "$@" >> scontrol.txt'
        for name, text in {"srun": srun, "scontrol": scontrol}.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)

    def start(self, **variables: str) -> "subprocess.Popen[str]":
        text = batch_script(TRAIN, Wants("a"), SlurmWants(max_requeues=3), str(self.folder))
        (self.folder / "job.sh").write_text(text)
        env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", **variables}
        return subprocess.Popen(["bash", "job.sh"], cwd=self.folder, env=env, stdout=subprocess.PIPE, text=True)

    def requeued(self) -> bool:
        path = self.folder / "scontrol.txt"
        return path.exists() and path.read_text() == "requeue 7\n"

    def await_file(self, name: str) -> None:
        deadline = time.monotonic() + 20
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize(("code", "requeued"), [(0, False), (1, False), (75, True), (137, False)])
def test_slurm_only_a_saved_job_is_requeued(tmp_path: Path, code: int, requeued: bool) -> None:
    stage = Stage(tmp_path, f"exit {code}")
    with stage.start() as job:
        assert job.wait(20) == code
    assert stage.requeued() == requeued
    assert (tmp_path / "runs/a/job.yaml").read_text() == "recipe: points\n"


@pytest.mark.parametrize(
    ("state", "requeued"),
    [
        ("JobState=RUNNING Reason=None", True),
        ("JobState=COMPLETING Reason=TimeLimit", True),
        ("JobState=COMPLETING Reason=None", False),  # somebody has cancelled it
        ("JobState=CANCELLED Reason=None", False),
    ],
)
def test_slurm_a_cancelled_job_does_not_come_back(tmp_path: Path, state: str, requeued: bool) -> None:
    stage = Stage(tmp_path, "exit 75", state)
    with stage.start() as job:
        assert job.wait(20) == 75
    assert stage.requeued() == requeued


def test_slurm_requeues_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "exit 75")
    with stage.start(SLURM_RESTART_COUNT="3") as job:
        assert job.wait(20) == 75
    assert not stage.requeued()


def test_slurm_the_warning_reaches_srun_and_its_end_is_awaited(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "trap 'sleep 0.5; echo saved; exit 75' USR1; touch up; while :; do sleep 0.05; done")
    with stage.start() as job:
        stage.await_file("up")
        job.send_signal(signal.SIGUSR1)
        said, _ = job.communicate(timeout=20)
    assert "saved" in said and "job 7 waits in the queue again" in said
    assert job.returncode == 75 and stage.requeued()


def test_slurm_sigterm_goes_to_the_launchers_only_once(tmp_path: Path) -> None:
    """Slurm sends it to the steps as well as to the script; a second one would mean: end without saving."""
    stage = Stage(tmp_path, "trap 'touch got' USR1 TERM; touch up; for i in {1..20}; do sleep 0.05; done; exit 75")
    with stage.start() as job:
        stage.await_file("up")
        job.send_signal(signal.SIGTERM)
        assert job.wait(20) == 75
    assert not (tmp_path / "got").exists() and stage.requeued()


def test_slurm_a_config_that_holds_the_end_mark_arrives_whole(tmp_path: Path) -> None:
    config = "recipe: points\n# $HOME `id` 'quoted'\nEND_OF_CONFIG\nseed: 1\n"
    program = Program("train", ("job.yaml",), str(tmp_path), config)
    text = batch_script(program, Wants("a"), SlurmWants(), str(tmp_path))
    lines = text[text.index("cat >") :]
    subprocess.run(["bash", "-c", lines[: lines.index("\n\n")]], check=True)
    assert (tmp_path / "job.yaml").read_text() == config
