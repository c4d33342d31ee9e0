from pathlib import Path

import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.jobs.record import JobRecord
from lockstep.jobs.states import logs, state
from tests.jobs.stand_ins import install

SLURM = JobRecord("17", "slurm", "points", "runs/a", "points-17.txt", "2026-01-01T10:00:00+00:00")
PODS = JobRecord("my-run", "kubernetes", "my-run", "/data/runs/a", "", "2026-01-02T10:00:00+00:00", "lab")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "JobState=PENDING Reason=Priority Restarts=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=01:00:00 NodeList=",
            "PENDING, reason Priority, ran 00:00:00 of 01:00:00",
        ),
        (
            "JobState=RUNNING Reason=None Restarts=2 ExitCode=0:0 RunTime=00:10:00 TimeLimit=01:00:00 NodeList=n[1-2]",
            "RUNNING, on n[1-2], ran 00:10:00 of 01:00:00, requeued 2 times",
        ),
        (
            "JobId=17 JobState=FAILED Restarts=0 ExitCode=1:0 RunTime=00:10:00 TimeLimit=01:00:00 NodeList=(null)",
            "FAILED, ran 00:10:00 of 01:00:00, exit code 1:0",
        ),
    ],
)
def test_slurm_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str) -> None:
    install(tmp_path, monkeypatch, scontrol=f"echo '{said}'")
    assert state(SLURM) == told


def test_slurm_a_job_of_the_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, scontrol="exit 1", sacct="echo 'COMPLETED|0:0|00:12:00'")
    assert state(SLURM) == "COMPLETED, ran 00:12:00, exit code 0:0"
    install(tmp_path, monkeypatch, sacct="echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert state(SLURM) == "ended; Slurm no longer knows it, its output does"


def test_the_last_lines_of_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"points-17\.txt cannot be read"):
        logs(SLURM, 2)
    Path("points-17.txt").write_text("one\ntwo\nthree\n")
    assert logs(SLURM, 2) == "two\nthree\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", "Running or waiting for its pods: kubectl get pods shows them"),
        ("Suspended=False Resumed\\nComplete=True JobsCompleted", "Complete, JobsCompleted"),
        ("Failed=True", "Failed"),
    ],
)
def test_states_of_a_train_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str) -> None:
    install(tmp_path, monkeypatch, kubectl=f'[ "$*" == "get trainjob my-run --namespace lab "* ] ; printf "{said}"')
    assert state(PODS) == told


def test_what_pods_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, kubectl='echo "$@"')
    said = logs(PODS, 9).strip()
    assert said == "logs --namespace lab -l jobset.sigs.k8s.io/jobset-name=my-run --prefix --tail=9"
    install(tmp_path, monkeypatch, kubectl="echo 'Error from server (NotFound): trainjobs not found' >&2; exit 1")
    with pytest.raises(RunError, match="create it first"):
        state(PODS)
