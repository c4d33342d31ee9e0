"""`lockstep submit`: what it prints and calls, and a real Slurm of two nodes from submission to the last step."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from lockstep.jobs.record import JobRecord
from tests.commands import Command, Done, lockstep
from tests.jobs.stand_ins import install
from tests.launch.clusters.slurm_here import CannotStartError, Slurm, slurm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def test_slurm_dry_run_prints_the_script_and_writes_nothing(folder: Path) -> None:
    done = lockstep(
        folder, "submit", "slurm", "recipe=points", "seed=3", "--nodes", "2", "--gpus-per-node", "4", "--dry-run"
    )
    assert done.code == 0, done.output
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=points\n")
    assert "#SBATCH --cpus-per-task=16" in done.stdout
    assert "\nseed: 3\n" in done.stdout
    assert "mkdir -p runs/points-" in done.stderr
    assert list(folder.iterdir()) == []


def test_slurm_the_folder_is_the_one_that_was_stated(folder: Path) -> None:
    (folder / "my.yaml").write_text("recipe: points\nrun: {dir: of/config}\n")
    for words, expected in ((["my.yaml"], "of/config"), (["my.yaml", "--output", "of/option"], "of/option")):
        done = lockstep(folder, "submit", "slurm", *words, "--nproc", "1", "--dry-run")
        assert f"#SBATCH --output={expected}/my-%j.txt" in done.stdout, done.output
        assert f"  dir: {expected}\n" in done.stdout


def test_kubernetes_dry_run_prints_the_manifest(folder: Path) -> None:
    (folder / "my.yaml").write_text("recipe: points\nseed: 3\n")
    words = ["my.yaml", "--image", "me/train:1", "--pvc", "runs", "--nodes", "2", "--gpus-per-node", "4"]
    done = lockstep(folder, "submit", "kubernetes", *words, "--env", "A=b", "--dry-run")
    assert done.code == 0, done.output
    config, job = yaml.safe_load_all(done.stdout)
    name = job["metadata"]["name"]
    assert name.startswith("my-")
    written = yaml.safe_load(config["data"]["job.yaml"])
    assert (written["seed"], written["run"]["dir"]) == (3, f"/data/runs/{name}")
    assert job["spec"]["trainer"]["env"] == [{"name": "A", "value": "b"}]


def test_kubernetes_a_script_of_the_image_keeps_its_words(folder: Path) -> None:
    words = ["/app/train.py", "--image", "i", "--pvc", "runs", "--nproc", "2", "--name", "a", "--dry-run"]
    done = lockstep(folder, "submit", "kubernetes", *words, "--", "--lr", "3e-4")
    assert done.code == 0, done.output
    trainer = yaml.safe_load(done.stdout)["spec"]["trainer"]
    assert trainer["command"][-1] == "run" and trainer["args"] == ["/app/train.py", "--lr", "3e-4"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipe=points"], "neither --gpus-per-node nor --nproc"),
        (["recipe=points", "--nproc", "1", "--time", "1h"], "--time 1h"),
        (["recipe=points", "--nproc", "1", "--name", "A B"], "--name A B"),
        (["recipe=pionts", "--nproc", "1"], "pionts"),
        (["recipe=points", "optim.lr=x", "--nproc", "1"], "optim.lr"),
        (["a.yaml", "b.yaml", "--nproc", "1"], "2 configs: a.yaml, b.yaml"),
        (["nowhere.yaml", "--nproc", "1"], "nowhere.yaml"),
        (["nowhere.py", "--nproc", "1"], "nowhere.py is not there"),
    ],
)
def test_slurm_mistakes_are_found_before_the_queue(folder: Path, words: list[str], said: str) -> None:
    done = lockstep(folder, "submit", "slurm", *words, "--dry-run")
    assert done.code == 2, done.output
    assert said in done.stderr and "Traceback" not in done.output


def test_slurm_a_recipe_beside_its_config_is_found_from_the_job(folder: Path) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "slow.py").write_text(SLOW_POINTS)
    (folder / "conf" / "slow.yaml").write_text("recipe: slow.py:SlowPoints\n")
    done = lockstep(folder, "submit", "slurm", "conf/slow.yaml", "--nproc", "1", "--output", "out/run", "--dry-run")
    config = done.stdout.partition("<<'END_OF_CONFIG'\n")[2].partition("END_OF_CONFIG")[0]
    (folder / "out" / "run").mkdir(parents=True)
    (folder / "out" / "run" / "job.yaml").write_text(config)
    done = lockstep(folder, "train", "out/run/job.yaml", "--nproc", "1", "--max-steps", "1")
    assert done.code == 0, done.output


def test_slurm_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = lockstep(folder, "submit", "slurm", "recipe=points", "--nproc", "1")
    assert done.code == 2 and "sbatch is not installed here" in done.stderr
    assert list((folder / "runs").iterdir()) == []


def test_slurm_refuses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, sbatch="echo 'sbatch: error: Invalid partition name specified' >&2; exit 1")
    done = lockstep(folder, "submit", "slurm", "recipe=points", "--nproc", "1", "--partition", "gold")
    assert done.code == 1 and "`sinfo` lists the partitions" in done.stderr
    assert list((folder / "runs").iterdir()) == []


def test_kubernetes_the_job_is_applied_and_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = 'if [ "$1" = apply ]; then cat > applied.yaml; else echo "Complete=True JobsCompleted"; fi'
    install(folder, monkeypatch, kubectl=tool)
    words = ["recipe=points", "--image", "i", "--pvc", "runs", "--nproc", "2", "--name", "my-run", "--namespace", "lab"]
    done = lockstep(folder, "submit", "kubernetes", *words)
    assert done.code == 0, done.output
    assert len(list(yaml.safe_load_all((folder / "applied.yaml").read_text()))) == 2
    found = lockstep(folder, "submit", "status")
    assert found.code == 0 and "my-run  my-run  Complete, JobsCompleted" in found.stdout


def test_nothing_was_submitted(folder: Path) -> None:
    for verb in ("status", "logs"):
        done = lockstep(folder, "submit", verb)
        assert done.code == 2 and "no job was submitted from here" in done.stderr


SLOW_POINTS = """
import time
from lockstep.recipes.points import Points

class SlowPoints(Points):
    def loss(self, model, batch):
        time.sleep(0.01)
        return super().loss(model, batch)
"""
SHORT = [
    "run.device=cpu",
    "run.threads=1",
    "precision=fp32",
    "log.tensorboard=false",
    "stop.epochs=8",
    "batch.global_batch=100",
]


def weights(run: Path) -> dict[str, torch.Tensor]:
    newest = max((run / "checkpoints").glob("step-*"))
    return load_file(newest / "model.safetensors")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def write_training(folder: Path) -> list[str]:
    """A config whose steps take long enough for a signal to hit between them, and its overrides."""
    (folder / "slow.py").write_text(SLOW_POINTS)
    (folder / "slow.yaml").write_text("recipe: slow.py:SlowPoints\ncheckpoint: {every_steps: 20, keep_last: 3}\n")
    return ["slow.yaml", *SHORT]


@pytest.fixture
def training(folder: Path) -> list[str]:
    return write_training(folder)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of the same training by as many ranks of one machine, without a scheduler or an end in between."""
    folder = tmp_path_factory.mktemp("unbroken") / "here"
    folder.mkdir()
    done = lockstep(folder, "train", *write_training(folder), "run.dir=run", "--nproc", "2")
    assert done.code == 0, done.output
    return weights(folder / "run")


def assert_equal(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> None:
    assert some.keys() == others.keys() and len(some) > 0
    assert [name for name in some if not torch.equal(some[name], others[name])] == []


# ---- two pods of a TrainJob, as processes of this machine ----


def pod(folder: Path, number: int, manifest: str, port: int) -> Command:
    """What the manifest's container runs, with the variables that Kubeflow Trainer's torch runtime sets."""
    config, job = yaml.safe_load_all(manifest)
    trainer = job["spec"]["trainer"]
    assert trainer["command"][:3] == ["python", "-m", "lockstep"]
    here = folder / f"pod-{number}"
    here.mkdir(exist_ok=True)
    (here / "slow.py").write_text(SLOW_POINTS)  # a part of the image, in its working folder
    (here / "job.yaml").write_text(config["data"]["job.yaml"])
    argv = [trainer["command"][3], *(word.replace("/etc/lockstep", str(here)) for word in trainer["args"])]
    variables = {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_NODE_RANK": str(number),
        "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": str(port),
    }
    return Command(here, *argv, env=variables)


@pytest.mark.slow
@pytest.mark.parametrize("evicted", [0, 1])
def test_kubernetes_an_evicted_pod_saves_for_all_and_the_job_goes_on(
    folder: Path, training: list[str], unbroken: dict[str, torch.Tensor], evicted: int
) -> None:
    words = [*training, "--image", "i", "--pvc", "p", "--nodes", "2", "--nproc", "1", "--output", str(folder / "run")]
    manifest = lockstep(folder, "submit", "kubernetes", *words, "--dry-run").stdout
    port = free_port()
    pods = [pod(folder, number, manifest, port) for number in (1, 0)][::-1]
    pods[0].until(lambda: any((folder / "run" / "checkpoints").glob("step-*")))
    os.kill(pods[evicted].pid, signal.SIGTERM)
    for one in pods:
        done = one.wait(30)
        assert done.code == 75, done.output
    assert "Preempted after saving step" in done.output
    pods = [pod(folder, number, manifest, port) for number in (0, 1)]
    ends = [one.wait() for one in pods]
    assert [end.code for end in ends] == [0, 0], [end.output for end in ends]
    assert "resumed at step" in ends[0].output
    assert_equal(weights(folder / "run"), unbroken)


# ---- with a real Slurm of two nodes ----


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Slurm]:
    try:
        with slurm() as running:
            yield running
    except CannotStartError as why:
        pytest.skip(f"no Slurm here: {str(why).splitlines()[0]}")


class Job:
    """A submitted job. logs: what it has printed."""

    def __init__(self, cluster: Slurm, folder: Path, done: Done) -> None:
        assert done.code == 0, done.output
        self.cluster, self.folder = cluster, folder
        self.id = done.stdout.split()[2]
        notes = sorted((folder / ".lockstep" / "jobs").iterdir())
        self.note = JobRecord(**yaml.safe_load(notes[-1].read_text()))
        assert self.note.id == self.id

    def logs(self) -> str:
        path = self.folder / self.note.output
        return path.read_text() if path.exists() else ""

    def until(self, reached: Callable[[], bool], within_s: float = 120) -> None:
        deadline = time.monotonic() + within_s
        while not reached():
            state = self.cluster.job(self.id)["JobState"]
            assert state in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"), f"{state}\n{self.logs()}"
            assert time.monotonic() < deadline, f"{state}\n{self.logs()}\n{self.cluster.logs()}"
            time.sleep(0.05)

    def steps(self) -> int:
        """Optimizer steps of the newest checkpoint."""
        found = (self.folder / self.note.run_dir / "checkpoints").glob("step-*")
        return max((int(one.name.removeprefix("step-")) for one in found), default=0)

    def ended(self) -> str:
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")
        return self.cluster.await_state(self.id, *ends, within_s=200)

    def weights(self) -> dict[str, torch.Tensor]:
        return weights(self.folder / self.note.run_dir)


@pytest.fixture
def cluster(two_nodes: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    monkeypatch.setenv("SLURM_CONF", two_nodes.env["SLURM_CONF"])
    yield two_nodes
    two_nodes.cancel_all()


def submit(cluster: Slurm, folder: Path, *words: str) -> Job:
    return Job(cluster, folder, lockstep(folder, "submit", "slurm", *words, "--nodes", "2", "--time", "10"))


@pytest.mark.slow
def test_slurm_a_signal_saves_requeues_and_resumes_to_the_same_weights(
    cluster: Slurm, folder: Path, training: list[str], unbroken: dict[str, torch.Tensor]
) -> None:
    job = submit(cluster, folder, *training, "--nproc", "1")
    job.until(lambda: job.steps() >= 20)
    assert cluster.job(job.id)["NodeList"] == "n[1-2]"
    # What Slurm itself sends a while before the time limit (--signal=B:USR1@120).
    cluster.ask("scancel", "--batch", "--signal=USR1", job.id)
    job.until(lambda: cluster.job(job.id)["Restarts"] == "1")
    status = lockstep(folder, "submit", "status", job.id)
    assert "requeued 1 time" in status.stdout
    assert job.ended() == "COMPLETED", job.logs()
    said = lockstep(folder, "submit", "logs", job.id).stdout
    assert "Preempted after saving step" in job.logs()
    assert "resumed at step" in said and "done at step 240" in said
    assert "2 ranks" in job.logs()
    assert_equal(job.weights(), unbroken)


@pytest.mark.slow
def test_slurm_an_urgent_job_takes_the_nodes_and_gives_them_back(
    cluster: Slurm, folder: Path, training: list[str], unbroken: dict[str, torch.Tensor]
) -> None:
    job = submit(cluster, folder, *training, "--gpus-per-node", "1")
    job.until(lambda: job.steps() >= 20)
    began = time.monotonic()
    cluster.ask("srun", "--partition=urgent", "-N2", "--gpus-per-node=2", "true", timeout_s=90)
    assert time.monotonic() - began < 25, "it waited for the end of the grace time: nothing had saved and left"
    assert job.ended() == "COMPLETED", job.logs()
    assert "Preempted after saving step" in job.logs() and "resumed at step" in job.logs()
    assert_equal(job.weights(), unbroken)


@pytest.mark.slow
def test_slurm_a_cancelled_job_stays_cancelled(cluster: Slurm, folder: Path, training: list[str]) -> None:
    job = submit(cluster, folder, *training, "--nproc", "1")
    job.until(lambda: job.steps() >= 20)
    cluster.ask("scancel", job.id)
    assert job.ended() == "CANCELLED"
    time.sleep(1)
    assert cluster.job(job.id)["JobState"] == "CANCELLED"
    assert "CANCELLED" in lockstep(folder, "submit", "status", job.id).stdout


@pytest.mark.slow
def test_slurm_a_failure_is_not_requeued(cluster: Slurm, folder: Path, training: list[str]) -> None:
    text = (folder / "slow.py").read_text().replace("time.sleep(0.01)", "raise ValueError('a broken recipe')")
    (folder / "slow.py").write_text(text)
    job = submit(cluster, folder, *training, "--nproc", "1")
    assert job.ended() == "FAILED"
    assert "a broken recipe" in job.logs() and "slow.py:7" in job.logs()
    assert "FAILED" in lockstep(folder, "submit", "status", job.id).stdout


SCRIPT = """
import os, pathlib, signal, sys, time
import torch, torch.distributed as dist

asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
dist.init_process_group("gloo")
rank, saved = dist.get_rank(), pathlib.Path(sys.argv[1])
start = int(saved.read_text()) if saved.exists() else 0
for step in range(start, 40):
    time.sleep(0.05)
    stop = torch.tensor(len(asked))
    dist.all_reduce(stop)
    if rank == 0:
        pathlib.Path("at.txt").write_text(str(step))
    if stop:
        if rank == 0:
            saved.write_text(str(step + 1))
        dist.barrier()
        dist.destroy_process_group()
        print(f"rank {rank} saved after step {step}", flush=True)
        sys.exit(75)
print(f"rank {rank} of {dist.get_world_size()} is done, {start} to {step}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_slurm_a_script_that_saves_by_itself(cluster: Slurm, folder: Path) -> None:
    (folder / "mine.py").write_text(SCRIPT)
    words = ["mine.py", "--nproc", "1", "--nodes", "2", "--time", "10", "--name", "mine", "--", "saved.txt"]
    job = Job(cluster, folder, lockstep(folder, "submit", "slurm", *words))
    job.until(lambda: (folder / "at.txt").exists() and int((folder / "at.txt").read_text() or 0) >= 3)
    cluster.ask("scancel", "--batch", "--signal=USR1", job.id)
    assert job.ended() == "COMPLETED", job.logs()
    start = int((folder / "saved.txt").read_text())
    assert 3 < start < 40
    assert f"rank 0 of 2 is done, {start} to 39" in job.logs()


def test_the_python_of_a_job_is_the_one_that_submits(folder: Path) -> None:
    done = lockstep(folder, "submit", "slurm", "recipe=points", "--nproc", "1", "--dry-run")
    assert f"{sys.executable} -m lockstep train" in done.stdout
    said = subprocess.run([sys.executable, "-m", "lockstep", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("lockstep ")
