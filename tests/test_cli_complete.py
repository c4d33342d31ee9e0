"""What TAB offers at each place of the command line."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from lockstep.cli import app
from lockstep.cli_complete import answer

ROOT: Any = typer.main.get_command(app)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("config.yaml", "train.py", "other.txt", ".hidden.yaml"):
        (tmp_path / name).write_text("recipe: points\n" if name == "config.yaml" else "")
    (tmp_path / "mine.py").write_text("class Mine(Recipe): ...\nclass Other: ...\n")
    (tmp_path / "runs" / "a b").mkdir(parents=True)
    return tmp_path


def offered(line: str) -> list[str]:
    return [one.partition("\t")[0] for one in answer(ROOT, line.split(" "))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tr", ["train"]),
        ("x", []),
        ("submit s", ["slurm", "status"]),
        ("train --no", ["--node-rank", "--node-wait"]),
        ("train --h", ["--help"]),
        ("train --nproc ", ["auto"]),
        ("train --nproc=", ["--nproc=auto"]),
        ("train --nproc 2 optim.l", ["optim.lr=", "optim.lr_scaling=", "optim.lr_cap="]),
        ("train opt", ["options.", "optim."]),
        ("train see", ["seed="]),
        ("train run.device=", ["run.device=auto", "run.device=cpu", "run.device=cuda"]),
        ("train run.device=cu", ["run.device=cuda"]),
        ("train optim.fused=", ["optim.fused=true", "optim.fused=false"]),
        ("train recipe=po", ["recipe=points"]),
        ("train recipe=m", ["recipe=mine.py:Mine"]),
        ("train recipe=mine.py:", ["recipe=mine.py:Mine", "recipe=mine.py:Other"]),
        ("train recipe=nowhere.py:", []),
        ("train con", ["config.yaml"]),
        ("train ./con", ["./config.yaml"]),
        ("train .h", [".hidden.yaml"]),
        ("train config.yaml con", []),
        ("train config.yaml options.hid", ["options.hidden="]),
        ("train recipe=points options.batchnorm=", ["options.batchnorm=true", "options.batchnorm=false"]),
        ("train recipe=folder options.root=r", ["options.root=runs/"]),
        ("train --resume ru", ["runs/", "run."]),
        ("train --resume runs/", ["runs/a b/"]),
        ("train --resume run.de", ["run.device=", "run.deterministic="]),
        ("train --resume --max", ["--max-steps"]),
        ("scan --split ", ["train", "val", "all"]),
        ("scan config.yaml --js", ["--json"]),
        ("run ", ["mine.py", "runs/", "train.py"]),
        ("run --nproc 2 tr", ["train.py"]),
        ("run train.py --n", []),
        ("run train.py o", ["other.txt"]),
        ("verify t", ["train.py"]),
        ("verify c", ["config.yaml", "checkpoint."]),
        ("verify train.py -- o", ["other.txt"]),
        ("verify config.yaml run.de", ["run.device=", "run.deterministic="]),
        ("init ", ["runs/"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("schema --output o", ["other.txt"]),
        ("nonsense --nproc ", []),
    ],
)
def test_what_is_offered(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


def test_nothing_typed_shows_the_verbs_with_what_they_do() -> None:
    found = answer(ROOT, [""])
    assert [line.partition("\t")[0] for line in found] == list(ROOT.commands)
    assert found[0] == "init\tMake a small project that trains at once."
    assert answer(ROOT, []) == found


def test_files_and_sections_first() -> None:
    found = offered("train ")
    assert found[:2] == ["config.yaml", "runs/"] and {"recipe=", "options.", "optim.", "stop."} <= set(found)
    assert "optim.lr=" not in found and ".hidden.yaml" not in found


@pytest.mark.parametrize("words", [["tr"], ["train", "optim.l"], ["train", "recipe=voc", "options."]])
def test_it_is_quick_and_needs_neither_torch_nor_pydantic(words: list[str]) -> None:
    code = "import sys\nsys.modules['torch'] = sys.modules['pydantic'] = None\nfrom lockstep.cli import main\n"
    code += f"sys.argv = ['lockstep', '__complete', *{words!r}]\nmain()"
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert done.stdout and not done.stderr
    assert min(spent) <= 0.3
