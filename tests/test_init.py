"""`init` makes a project that trains and is proven; what is in the way is named, and a failed try leaves nothing."""

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.init import KEPT, init, package_name, project
from tests.commands import Command, lockstep
from tests.permissions import obey_permissions

QUICK = ("options.train_images=128", "options.val_images=40", "stop.epochs=2")
FILES = {
    *(".config.schema.json", ".gitignore", "README.md", "config.yaml", "data.py", "distributed.py", "pyproject.toml"),
    *("recipe.py", "tests/test_training.py", "train.py"),
}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["shapes", "my-project 2", "1st", "class", "données", "形状", "a$b", 'q"uote', "new\nline"]
)
def test_any_name_of_a_folder(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    init(tmp_path / "deep" / name)
    assert files(tmp_path / "deep" / name) == FILES
    made = tomllib.loads((tmp_path / "deep" / name / "pyproject.toml").read_text(encoding="utf-8"))
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", made["project"]["name"])
    said = capsys.readouterr().out
    assert ("In pyproject.toml it is called" in said) == (made["project"]["name"] != name)
    assert "lockstep train config.yaml" in said and "lockstep verify config.yaml" in said and "pytest" in said
    assert "$" not in (tmp_path / "deep" / name / "README.md").read_text(encoding="utf-8").replace(name, "")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("my-project 2", "my-project-2"),
        ("1st", "1st"),
        ("class", "class"),
        ("données", "donnees"),
        ("形状", "project"),
        ("__", "project"),
        ("My.Project_2", "my-project-2"),
    ],
)
def test_names_of_packages(name: str, package: str) -> None:
    assert package_name(name) == package


def test_what_a_fresh_repository_has_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("README.md", ".gitignore", "LICENSE"):
        (tmp_path / name).write_text(f"mine: {name}")
    for name in (".git", ".venv"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    init(Path())
    assert files(tmp_path) == FILES | {"LICENSE"}
    assert (tmp_path / "README.md").read_text() == "mine: README.md"
    assert (tmp_path / ".gitignore").read_text() == "mine: .gitignore"
    said = capsys.readouterr().out
    assert "Left as it was: .gitignore, README.md" in said and "cd " not in said
    with pytest.raises(UserError, match="not empty"):
        init(Path())


def test_a_full_folder_is_refused_and_named(tmp_path: Path) -> None:
    for name in (".git", "b.txt", *(f"n{number}" for number in range(6))):
        (tmp_path / name).write_text("kept")
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"is not empty: b.txt, n0, n1, n2, n3 and 2 more"):
        init(tmp_path)
    assert files(tmp_path) == before


def a_file(place: Path) -> Path:
    place.write_text("a file")
    return place


def inside_a_file(place: Path) -> Path:
    return a_file(place) / "new"


def a_dead_link(place: Path) -> Path:
    place.symlink_to(place.parent / "nowhere")
    return place


def too_long(place: Path) -> Path:
    return place / ("x" * 300)


@pytest.mark.parametrize("make", [a_file, inside_a_file, a_dead_link, too_long])
def test_a_place_that_cannot_be(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    folder = make(tmp_path / "place")
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"not a folder|link to nothing|cannot be written"):
        init(folder)
    assert files(tmp_path) == before and len(list(tmp_path.iterdir())) <= 1


def test_no_right_to_write(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    done = Command(tmp_path / "here", "init", str(locked / "new"), before=obey_permissions).wait()
    assert done.code == 2 and "cannot be written" in done.stderr and "Traceback" not in done.stderr
    assert list(locked.iterdir()) == []


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # a larger file fails, as on a full disk


def test_a_disk_that_gets_full_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("../empty", "../a/b"):
        done = Command(tmp_path / "here", "init", place, before=limit_files).wait()
        assert done.code == 2 and "cannot be written" in done.stderr and "File too large" in done.stderr, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "here", "here.stdout", "here.stderr"}
    assert list((tmp_path / "empty").iterdir()) == []


def test_what_appears_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(folder: Path) -> set[str]:
        (folder / "train.py").write_text("another's")
        return set()

    monkeypatch.setattr("lockstep.init.check_folder", late)
    with pytest.raises(UserError, match=r"train\.py"):
        init(tmp_path)
    assert files(tmp_path) == {"train.py"} and (tmp_path / "train.py").read_text() == "another's"


def test_everything_kept_is_spelled_as_on_disk() -> None:
    assert {path.parts[0] for path in project("x", "x")} & KEPT == {"README.md", ".gitignore"}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a name that is none in Python, made through the command line."""
    folder = tmp_path_factory.mktemp("projects") / "my-project 2"
    done = lockstep(folder, "init")
    assert done.code == 0 and not done.stderr, done.output
    return folder


def digest(run: Path) -> str:
    return str(json.loads((run / "manifest.json").read_text())["weights_digest"])


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_is_one_training_in_both_ways(shapes: Path) -> None:
    """`lockstep train` and `train.py`: the same weights to the last bit; the same line again goes on."""
    done = lockstep(shapes, "train", "config.yaml", "--nproc", "1", "run.dir=runs/a", "run.threads=1", *QUICK)
    assert done.code == 0 and "best so far" in done.stdout and not done.stderr, done.output
    script = ("train.py", "run.dir=runs/b", "run.threads=1", *QUICK)
    page = python(shapes, *script)
    assert page.returncode == 0 and "best so far" in page.stdout, page.stdout + page.stderr
    assert digest(shapes / "runs/a") == digest(shapes / "runs/b")


@pytest.mark.slow
def test_a_mistake_has_no_traceback(shapes: Path) -> None:
    page = python(shapes, "train.py", "optim.lrr=1")
    assert page.returncode == 2 and "did you mean optim.lr?" in page.stderr and "Traceback" not in page.stderr


@pytest.mark.slow
def test_it_is_proven_and_learns_and_runs_under_torchrun(shapes: Path) -> None:
    tested = python(shapes, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0 and "2 passed" in tested.stdout, tested.stdout + tested.stderr
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", "run.dir=runs/c")
    learnt = python(shapes, *ranks)
    assert learnt.returncode == 0, learnt.stdout + learnt.stderr
    end = json.loads((shapes / "runs/c/manifest.json").read_text())["end"]
    assert end["results"]["val/accuracy"] > 0.8
    again = python(shapes, *ranks, "stop.epochs=7")
    assert again.returncode == 0 and f"resumed at step {end['step']}" in again.stdout, again.stdout + again.stderr
    watched = lockstep(shapes, "run", "--nproc", "2", "train.py", *QUICK)
    assert watched.code == 0 and "best so far" in watched.stdout, watched.output


def test_it_is_tidy(shapes: Path) -> None:
    """Its own lint rules hold, and every line fits."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ruff")), "check", "--no-cache", "."],
        cwd=shapes,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    long = [
        f"{path.name}:{number}"
        for path in shapes.glob("*.*")
        if path.suffix in (".py", ".md", ".yaml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert not long
