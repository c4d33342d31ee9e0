from pathlib import Path

import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.jobs.tools import ask, call
from tests.jobs.stand_ins import install


def test_what_a_tool_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, sbatch='echo "got $1"; cat')
    assert call(["sbatch", "--parsable"], feed="a script\n") == "got --parsable\na script\n"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "`sinfo` lists"),
        ("sbatch: error: ... Requested node configuration is not available", "--gpus-per-node"),
        (
            'no matches for kind "TrainJob" in version "trainer.kubeflow.org/v1alpha1"',
            "Kubeflow Trainer is not installed",
        ),
        ('strict decoding error: unknown field "spec.runtimePatches"', "older than 2.2"),
        ("something else", ""),
    ],
)
def test_complaints_come_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, advice: str) -> None:
    install(tmp_path, monkeypatch, sbatch=f"echo '{said}' >&2; exit 3")
    with pytest.raises(RunError) as caught:
        call(["sbatch"])
    assert said in str(caught.value) and "exit code 3" in str(caught.value)
    assert (advice in str(caught.value)) if advice else ("Next" not in str(caught.value))


def test_a_tool_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="sbatch is not installed here") as caught:
        call(["sbatch"])
    assert "--dry-run" in str(caught.value)


def test_failures_that_are_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, sacct="echo out; echo err >&2; exit 4")
    assert ask(["sacct"]) == (4, "out\n", "err\n")
