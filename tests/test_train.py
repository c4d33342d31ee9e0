"""`lockstep train`: the run's folder, what is resumed, and the same run however it is started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep import train as module
from lockstep.core.errors import UserError
from lockstep.core.outcome import Exit
from lockstep.runtime.config import dump_config, load_config
from lockstep.runtime.world import default_ranks
from lockstep.train import new_run_dir, resolve, resumed_folder
from tests.commands import Command, lockstep

RECIPES = Path(__file__).with_name("bad_recipes.py")
POINTS = ["recipe=points", "options.samples=60", "options.val_samples=20", "options.hidden=8"]
POINTS += ["batch.global_batch=10", "log.tensorboard=off", "log.every_steps=1", "run.threads=1", "precision=fp32"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def a_run(folder: Path, started: str | None, *overrides: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(load_config(None, ["recipe=points", *overrides])))
    if started is not None:
        (folder / "manifest.json").write_text(json.dumps({"started": started}))
    return folder


@pytest.mark.parametrize(
    ("recipe", "name"),
    [("points", "points"), ("digit_scenes", "digit_scenes"), ("my/task.py:Cells", "Cells")],
)
def test_a_new_run_is_named_after_its_recipe_and_the_time(here: Path, recipe: str, name: str) -> None:
    folder = new_run_dir(load_config(None, [f"recipe={recipe}"]))
    assert folder.parent == Path("runs")
    stem, date, time = folder.name.rsplit("-", 2)
    assert stem == name and len(date) == 8 and len(time) == 6
    assert folder.is_dir() and not any(folder.iterdir())


def test_two_runs_of_one_second_have_folders_of_their_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed(module.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Fixed":
            return cls(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr(module, "datetime", Fixed)
    config = load_config(None, ["recipe=points"])
    first = new_run_dir(config)
    assert first == Path("runs/points-20260102-030405")
    assert new_run_dir(config) == Path("runs/points-20260102-030405-2")
    assert new_run_dir(config) == Path("runs/points-20260102-030405-3")


def test_a_stated_folder_is_taken_where_it_holds_no_run(here: Path) -> None:
    config = load_config(None, ["recipe=points", "run.dir=mine"])
    (here / "mine" / "notes").mkdir(parents=True)
    assert new_run_dir(config) == Path("mine")
    # What has failed before its first record can be started again.
    (here / "mine" / "manifest.json").touch()
    (here / "mine" / "metrics.jsonl").touch()
    assert new_run_dir(config) == Path("mine")
    (here / "mine" / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"(?s)run\.dir=mine holds a run already.*it has saved nothing: remove it"):
        new_run_dir(config)
    (here / "mine" / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(UserError, match=r"(?s)run\.dir=mine holds a run already.*--resume mine"):
        new_run_dir(config)


def test_without_a_folder_the_newest_run_is_resumed(here: Path) -> None:
    a_run(here / "runs" / "z-first", "2026-01-01T10:00:00+00:00")
    newest = a_run(here / "runs" / "a-second", "2026-01-01T10:00:00.500+00:00")
    a_run(here / "runs" / "never-began", None)
    (here / "runs" / "zz-no-run").mkdir()
    assert resumed_folder("").resolve() == newest
    (newest / "manifest.json").write_text("{")
    assert resumed_folder("").name == "z-first"


def test_a_named_folder_is_resumed(here: Path) -> None:
    folder = a_run(here / "elsewhere" / "run", None)
    assert resumed_folder(str(folder)) == folder
    for wrong in ("nowhere", "elsewhere", str(folder / "config.yaml")):
        with pytest.raises(UserError, match="is not the folder of a run"):
            resumed_folder(wrong)


def test_nothing_to_resume(here: Path) -> None:
    with pytest.raises(UserError, match="no run under runs/"):
        resumed_folder("")


def test_a_resumed_run_keeps_its_config_but_for_the_overrides(here: Path) -> None:
    folder = a_run(here / "run", None, "optim.lr=0.5", "stop.epochs=7")
    config = resolve(None, ["stop.epochs=9"], folder)
    assert (config.recipe, config.optim.lr, config.stop.epochs) == ("points", 0.5, 9)
    with pytest.raises(UserError, match=r"both a config \(c.yaml\) and a run to resume"):
        resolve(Path("c.yaml"), [], folder)


def test_show_config_prints_what_would_run_and_starts_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = a_run(here / "runs" / "one", "2026", "optim.lr=0.5")
    for resume in ("", str(folder)):
        for limit, words in ((None, []), (3, ["stop.max_steps=3"])):
            assert module.train(None, ["seed=4"], 2, limit, resume, show_config=True) == Exit.DONE
            (here / "shown.yaml").write_text(capsys.readouterr().out)
            assert load_config(here / "shown.yaml", []) == resolve(None, ["seed=4", *words], folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "manifest.json"]


@pytest.mark.parametrize("start", ["new", "resume", "either"])
@pytest.mark.parametrize("restart", [0, 1])
@pytest.mark.parametrize("saved", [False, True])
def test_where_a_start_begins(
    here: Path, monkeypatch: pytest.MonkeyPatch, start: Any, restart: int, saved: bool
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restart))
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    folder = here / "run"
    (folder / "checkpoints" / ("step-00000120" if saved else ".writing-step-00000120")).mkdir(parents=True)
    found, resume, story = module._start(load_config(None, ["recipe=points"]), folder, start)
    assert found == folder
    assert resume == (start == "resume" or (saved and (restart > 0 or start == "either")))
    begun = "from step 120" if saved else "from the beginning"
    assert story == ([f"restart 1 of 2: {begun}"] if restart else [])


def test_a_restart_without_a_folder_takes_that_of_the_config(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under torchrun: each start gets the same command line."""
    (here / "run" / "checkpoints" / "step-00000120").mkdir(parents=True)
    named, unnamed = (load_config(None, ["recipe=points", *more]) for more in (["run.dir=run"], []))
    with pytest.raises(UserError, match="holds a run already"):
        module._start(named, None, "new")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert module._start(named, None, "new") == (Path("run"), True, ["restart 1 of 1: from step 120"])
    _, resume, story = module._start(unnamed, None, "new")
    assert not resume and story[1] == "the run before had no run.dir=FOLDER to be found by"


def test_default_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    config = load_config(None, ["recipe=points"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for cores, ranks in ((1, 1), (2, 2), (64, 2)):
        monkeypatch.setattr("lockstep.runtime.world.num_cores", lambda cores=cores: cores)
        assert default_ranks(config.run.device) == ranks
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert default_ranks(config.run.device) == 8
    assert default_ranks("cpu") == 2


# ---- real runs ----


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


LINES = ["run: ", "data: 60 samples", "global batch 10 = 5 per rank x 2 ranks", "epoch 1, step 6: ", "done at step 6"]
LINES += ["go on: lockstep train --resume", "your own model and data: lockstep init DIR"]


def test_a_run_leaves_all_that_is_promised_and_speaks_once(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    done = lockstep(folder, "train", *POINTS, "stop.epochs=1", "--nproc", "2")
    assert done.code == 0, done.output
    assert done.stderr == ""
    assert [done.stdout.count(line) for line in LINES] == [1] * len(LINES)
    (run,) = (folder / "runs").iterdir()
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "logs",
        "manifest.json",
        "metrics.jsonl",
    ]
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["rank-00000.log", "rank-00001.log"]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["best", "step-00000006"]
    about = manifest(run)
    assert (about["launch"], about["num_ranks"], about["end"]["step"]) == ("lockstep train", 2, 6)
    assert load_config(run / "config.yaml", []) == load_config(None, [*POINTS, "stop.epochs=1"])


@pytest.mark.slow
def test_a_limit_of_steps_is_for_this_time_only(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    done = lockstep(folder, "train", *POINTS, "run.dir=run", "stop.epochs=2", "--max-steps", "4", "--nproc", "2")
    assert done.code == 0 and "stopped at step 4;" in done.output, done.output
    assert load_config(folder / "run" / "config.yaml", []).stop.max_steps is None
    done = lockstep(folder, "train", "--resume", "run", "--nproc", "2")
    assert done.code == 0 and "done at step 12;" in done.output, done.output
    assert "changed since the save" not in done.output
    assert [record["step"] for record in records(folder / "run") if "loss" in record] == list(range(1, 13))


@pytest.mark.slow
def test_interrupted_then_resumed_without_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    command = Command(folder, "train", *POINTS, "stop.epochs=400", "checkpoint.every_steps=5", "--nproc", "2")
    command.until(
        lambda: any(len(records(run)) > 20 for run in folder.glob("runs/*") if (run / "metrics.jsonl").exists())
    )
    os.kill(command.pid, signal.SIGINT)
    done = command.wait()
    assert done.code == Exit.INTERRUPTED, done.output
    assert "Interrupted" in done.output and "Traceback" not in done.output
    done = lockstep(folder, "train", "--resume", "--max-steps", "40", "stop.epochs=400", "--nproc", "1")
    assert done.code == 0, done.output
    assert "stopped at step" in done.output
    (run,) = (folder / "runs").iterdir()
    resumed_at = manifest(run)["resumed_at"]
    assert resumed_at >= 15 and f"resumed at step {resumed_at} " in done.output
    assert manifest(run)["end"]["step"] == max(40, resumed_at)
    steps = [record["step"] for record in records(run) if "loss" in record]
    assert steps == list(range(1, max(40, resumed_at) + 1))


@pytest.mark.slow
def test_ctrl_c_before_the_start_is_an_interruption_too(tmp_path: Path) -> None:
    """torch is imported for seconds; the real command is asked here."""
    code = "import sys, threading, signal, os\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
    code += "sys.argv = ['lockstep', 'train', 'recipe=points']\n"
    code += "class Interrupt:\n    def find_spec(self, name, *_):\n"
    code += "        if name == 'torch': os.kill(os.getpid(), signal.SIGINT)\n"
    code += "sys.meta_path.insert(0, Interrupt())\nfrom lockstep.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.INTERRUPTED, done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("all_ranks", [False, True])
def test_the_other_ranks_are_heard_when_asked(tmp_path: Path, all_ranks: bool) -> None:
    folder = tmp_path / "here"
    argv = [f"recipe={RECIPES}:Talkative", *POINTS[4:], "run.dir=run", "stop.epochs=1", "--nproc", "2"]
    done = lockstep(folder, "train", *argv, *(["--all-ranks"] if all_ranks else []))
    assert done.code == 0, done.output
    lines = done.stdout.splitlines()
    said = [line for line in lines if "a model is made" in line]
    assert sorted(said) == (
        ["[rank 0] a model is made", "[rank 1] a model is made"] if all_ranks else ["a model is made"]
    )
    assert all(line.startswith("[rank ") for line in lines) == all_ranks
    assert ("a model is made" in (folder / "run" / "logs" / "rank-00001.log").read_text()) != all_ranks


@pytest.mark.slow
def test_torchrun_gives_the_same_run_and_speaks_once(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    same = [*POINTS, "stop.epochs=1"]
    ours = lockstep(folder, "train", *same, "run.dir=ours", "--nproc", "2")
    assert ours.code == 0, ours.output
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    theirs = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", "-m", "lockstep", "train", *same],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert theirs.returncode == 0, theirs.stderr
    assert [theirs.stdout.count(line) for line in LINES] == [1] * len(LINES)
    (run,) = (folder / "runs").iterdir()
    assert manifest(run)["launch"] == "torchrun"
    assert manifest(run)["weights_digest"] == manifest(folder / "ours")["weights_digest"]
    assert manifest(run)["config_digest"] == manifest(folder / "ours")["config_digest"]


BAD = """\
import torch
from torch import nn
from lockstep.runtime import Recipe, Term


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.stem(x).relu()
        h = h / x.abs().sum(1, keepdim=True)  # fine until a sample is all zero
        return self.head(h).squeeze(1)


class Bad(Recipe):
    def __init__(self, zero=17):
        self.zero = zero

    def model(self):
        return Net()

    def train_data(self):
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        if self.zero is not None:
            x[self.zero] = 0
        return torch.utils.data.TensorDataset(x, x.sum(1))

    def loss(self, model, batch):
        x, y = batch
        return {"squares": Term((model(x) - y).square().sum(), len(y))}
"""
SEARCH = ["train", "recipe=bad.py:Bad", "log.tensorboard=off", "precision=fp32", "run.threads=1"]


def test_a_search_names_the_line_the_sample_and_the_operation(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "bad.py").write_text(BAD)
    assert lockstep(here, *SEARCH, "run.dir=first", "--max-steps", "1", "--nproc", "1").code == 0
    before = sorted(here.glob("first/**/*"))
    for argv in ([*SEARCH, "--anomaly"], ["train", "--anomaly", "--resume", "first"]):
        done = lockstep(here, *argv)
        assert done.code == 1
        assert "step 1: loss or gradient is not finite\n  rank 0: sample 17, its loss is nan" in done.stderr
        assert "first in forward, `div` in the model itself (Net) makes nan (float32) of finite numbers" in done.stderr
        assert "at bad.py:13: h = h / x.abs().sum(1, keepdim=True)  # fine until" in done.stderr
        assert "Traceback" not in done.output
    assert sorted(here.glob("first/**/*")) == before  # the run that it began with is left as it is
    done = lockstep(here, *SEARCH, "options.zero=null", "--anomaly")
    assert done.code == 0
    assert "nothing found: every loss and gradient up to step 4 is finite" in done.output


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--nproc", "2"], "--anomaly with 2 ranks"),
        (["--nnodes", "2"], "--anomaly with 2 machines"),
        (["--resume-or-start", "run.dir=a"], "both --anomaly and --resume-or-start"),
    ],
)
def test_a_search_is_of_one_process(tmp_path: Path, argv: list[str], said: str) -> None:
    done = lockstep(tmp_path / "here", "train", "recipe=points", "--anomaly", *argv)
    assert done.code == 2
    assert said in done.stderr
