"""A table of mistakes: what the user types -> exit code, the words that must appear, those that must not.

Every row is a real `lockstep train`. Nowhere may a traceback or a path of Lockstep's own source be shown.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import lockstep
from lockstep.core.outcome import Exit
from tests.bad_recipes import Small
from tests.commands import Done
from tests.commands import lockstep as run
from tests.disks import remount, small_disk
from tests.runtime.state.snapshots import flip

RECIPES = Path(__file__).with_name("bad_recipes.py")
OURS = str(Path(lockstep.__file__).parent)
QUICK = ["batch.global_batch=10", "log.tensorboard=off", "log.every_steps=1", "run.threads=1", "precision=fp32"]
POINTS = ["recipe=points", "options.samples=60", "options.val_samples=20", "options.hidden=8", *QUICK]
TWO = ["--nproc", "2"]


def task(name: str, *more: str) -> list[str]:
    return [f"recipe={RECIPES}:{name}", *QUICK, *more]


def check(done: Done, code: Exit, must: str, never: str = "") -> None:
    """`must` and `never` are words with `|` between them."""
    assert done.code == code, done.output
    for words in must.split("|"):
        assert words.lower() in done.output.lower(), f"{words!r} is not in:\n{done.output}"
    for words in ["Traceback (most", OURS, "src/lockstep", *filter(None, never.split("|"))]:
        assert words not in done.output, f"{words!r} is in:\n{done.output}"


# ---- no rank is started: name, words typed, exit code, words shown ----

BEFORE_THE_START = [
    ("recipe misspelt", ["recipe=pionts"], "there is no recipe 'pionts'|did you mean recipe=points?"),
    ("recipe's file missing", ["recipe=nowhere.py:Task"], "the recipe file 'nowhere.py' does not exist|looked for"),
    ("recipe's class missing", task("WrongLabell"), "has no class 'WrongLabell'|it defines|WrongLabel,|Next:"),
    ("recipe's file without a class", [f"recipe={RECIPES}"], "path.py:Class"),
    ("unknown keys", ["optim.lrr=1", "sede=2"], "2 problems|did you mean optim.lr?|did you mean seed?"),
    ("a number as text", ["optim.lr=fast"], "optim.lr|above 0|override `optim.lr=fast`"),
    ("config missing", ["nowhere.yaml"], "nowhere.yaml does not exist"),
    ("two configs", ["a.yaml", "b.yaml"], "2 configs: a.yaml, b.yaml"),
    ("no number of ranks", ["recipe=points", "--nproc", "two"], "--nproc two|auto, or a whole number from 1"),
    ("no ranks", ["recipe=points", "--nproc", "0"], "--nproc 0|auto, or a whole number from 1"),
    ("no steps", ["recipe=points", "--max-steps", "0"], "--max-steps"),
    ("nothing to resume", ["--resume"], "no run under runs/|name its folder"),
    ("resumed from nowhere", ["--resume", "nowhere"], "nowhere is not the folder of a run|it holds config.yaml"),
    (
        "patience without a metric",
        ["stop.patience=3", "best.metric=null"],
        "stop.patience|best.metric names the metric",
    ),
]


@pytest.mark.parametrize(("argv", "must"), [row[1:] for row in BEFORE_THE_START], ids=[r[0] for r in BEFORE_THE_START])
def test_a_mistake_is_told_before_anything_starts(tmp_path: Path, argv: list[str], must: str) -> None:
    folder = tmp_path / "here"
    check(run(folder, "train", *argv), Exit.MISUSE, must, "Rank|rank 0")
    assert list(folder.iterdir()) == []


def test_a_folder_that_holds_a_run_is_not_taken_twice(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "metrics.jsonl").write_text("{}\n")
    (folder / "other" / "checkpoints" / "step-00000001").mkdir(parents=True)
    for name, step in (("run", "it has saved nothing: remove it"), ("other", "`lockstep train --resume other`")):
        done = run(folder, "train", *POINTS, f"run.dir={name}")
        check(done, Exit.MISUSE, f"run.dir={name} holds a run already|{step}")


# ---- ranks are started ----

ROWS = [
    ("no training samples", task("EmptyTraining"), Exit.MISUSE, "train_data() gave an empty data set|check its path"),
    ("no validation samples", task("EmptyValidation"), Exit.MISUSE, "val_data() gave an empty data set"),
    (
        "a label outside the classes",
        task("WrongLabel"),
        Exit.MISUSE,
        "rank 0: label 7 is outside the classes|0 .. 2|train sample 13, epoch 0|mend the label",
    ),
    (
        "a label outside the classes, on the other rank",
        task("WrongLabel", "options.at=53"),
        Exit.MISUSE,
        "rank 1: label 7 is outside the classes|train sample 53, epoch 0",
    ),
    (
        "a label outside the classes, in a worker",
        task("WrongLabel", "data.workers=1"),
        Exit.MISUSE,
        "rank 0: label 7 is outside the classes|train sample 13, epoch 0",
    ),
    (
        "a label outside the classes, in validation",
        task("WrongValidationLabel"),
        Exit.MISUSE,
        "rank 0: label 7 is outside the classes|val sample 13",
    ),
    (
        "a sample that raises",
        task("Unreadable"),
        Exit.FAILED,
        f"rank 0: reading train sample 13 raised ValueError: image 13 is truncated|{RECIPES}:|in __getitem__",
    ),
    (
        "a sample that raises, in a worker",
        task("Unreadable", "data.workers=1"),
        Exit.FAILED,
        f"rank 0: reading train sample 13 raised ValueError: image 13 is truncated|{RECIPES}:",
    ),
    (
        "more ranks than samples",
        [*POINTS, "options.samples=1", "batch.global_batch=2"],
        Exit.MISUSE,
        "1 training samples for 2 ranks|at least one sample for each rank|lower --nproc",
    ),
    (
        "a global batch smaller than the ranks",
        [*POINTS, "batch.global_batch=1"],
        Exit.MISUSE,
        "batch.global_batch=1 for 2 ranks|raise batch.global_batch|lower --nproc",
    ),
    (
        "a metric that nobody measures",
        [*POINTS, "best.metric=val/acuracy"],
        Exit.MISUSE,
        "best.metric=val/acuracy is not measured|one of val/loss, val/accuracy",
    ),
    (
        "a loss that is not finite, at once",
        task("NotANumber", "stop.nonfinite=stop"),
        Exit.FAILED,
        "step 4: loss or gradient is not finite|rank 0: sample 13, its loss is nan|`lockstep scan` finds",
    ),
    (
        "a loss that is not finite, up to the limit",
        task("NotANumber", "batch.global_batch=60", "stop.epochs=9", "stop.nonfinite_limit=3"),
        Exit.FAILED,
        "skipped on all ranks (1 in a row)|skipped on all ranks (2 in a row)|step 2: loss or gradient is not finite"
        "|sample 13, its loss is nan|fewer than 3 skipped steps in a row",
    ),
    ("a loss that is no terms", task("NoTerms"), Exit.MISUSE, "NoTerms.loss returned Tensor|Term(sum, count)"),
    ("counts that are wrong", task("WrongCounts"), Exit.MISUSE, "counts(batch) says|mend counts, or leave it out"),
    (
        "an error in the user's code",
        task("RaisingLoss"),
        Exit.FAILED,
        f"KeyError: 'pixels'|{RECIPES}:|in loss|Traceback (your frames only)",
    ),
    ("weights from nowhere", [*POINTS, "init_from=no.pt"], Exit.MISUSE, "no.pt is not there|Where: init_from"),
    ("an option of the recipe misspelt", [*POINTS, "options.hiden=3"], Exit.MISUSE, "hiden|hidden"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("argv", "code", "must"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_mistake_is_told_in_words(tmp_path: Path, argv: list[str], code: Exit, must: str) -> None:
    check(run(tmp_path / "here", "train", *argv, *TWO), code, must)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path / "here", "train", *POINTS, "run.device=cuda", "--nproc", "1")
    check(done, Exit.MISUSE, "rank 0 needs GPU 0, torch sees 0|run.device=cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "must"),
    [
        (
            lambda: Small(hidden=9).model().state_dict(),
            "of another architecture|(9, 2) in the file, (8, 2) in the model",
        ),
        (lambda: {"epoch": 3}, "holds no tensors by name|a state dict"),
        (lambda: {"model": Small(), "weight": torch.zeros(1)}, "of another architecture|1 not in the model (weight)"),
    ],
    ids=["another architecture", "no weights", "code, which is passed over"],
)
def test_weights_that_do_not_fit(tmp_path: Path, content: Callable[[], object], must: str) -> None:
    torch.save(content(), tmp_path / "weights.pt")
    done = run(tmp_path / "here", "train", *task("Small"), f"init_from={tmp_path}/weights.pt", *TWO)
    check(done, Exit.MISUSE, f"{tmp_path}/weights.pt|{must}")


# ---- the folder ----


@pytest.mark.slow
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path / "here", "train", *POINTS, f"run.dir={tmp_path}/file/run", *TWO)
    check(done, Exit.MISUSE, f"the run's folder cannot be written: Not a directory|Where: {tmp_path}/file/run|run.dir=")


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(tmp_path: Path, finished: Path) -> None:
    with small_disk(tmp_path / "disk", "1m"):
        shutil.copytree(finished, tmp_path / "disk" / "run", symlinks=True)
        remount(tmp_path / "disk", "ro")
        for argv in ([*POINTS, f"run.dir={tmp_path}/disk/new"], ["--resume", f"{tmp_path}/disk/run", "stop.epochs=9"]):
            done = run(tmp_path / "here", "train", *argv, *TWO)
            check(
                done, Exit.MISUSE, f"the run's folder cannot be written: Read-only file system|Where: {tmp_path}/disk"
            )


@pytest.mark.slow
@pytest.mark.parametrize("size", ["8k", "16k", "24k"])
def test_a_disk_too_small_for_the_run_itself(tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size):
        done = run(tmp_path / "here", "train", *POINTS, f"run.dir={tmp_path}/disk/run", *TWO)
    assert done.code in (Exit.MISUSE, Exit.FAILED)
    check(done, Exit(done.code), "No space left on device|Next:", "mend that line")


# ---- resumed ----


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("finished") / "here"
    done = run(folder, "train", *POINTS, "run.dir=run", "stop.epochs=2", *TWO)
    assert done.code == 0, done.output
    return folder / "run"


@pytest.fixture
def resumable(tmp_path: Path, finished: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "here" / "run", symlinks=True))


MISFITS = [
    ("options.hidden=7", "step-00000012 is of another architecture|0.weight: (8, 2) in the file, (7, 2) in the model"),
    ("options.layers=1", "of another architecture|not in the model"),
    ("optim.name=sgd", "step-00000012 does not fit this run: it was saved with another optimizer than SGD"),
]


@pytest.mark.slow
def test_a_checkpoint_that_does_not_fit_leaves_the_run_as_it_was(resumable: Path) -> None:
    before = (resumable / "config.yaml").read_text()
    for change, must in MISFITS:
        done = run(resumable.parent, "train", "--resume", "run", change, "stop.epochs=3", *TWO)
        check(done, Exit.MISUSE, f"changed since the save: {change.partition('=')[0]}|{must}")
        assert (resumable / "config.yaml").read_text() == before
    done = run(resumable.parent, "train", "--resume", "run", "stop.epochs=3", *TWO)
    check(done, Exit.DONE, "resumed at step 12 (epoch 3, 0 samples in)|done at step 18")


@pytest.mark.slow
def test_damaged_checkpoints_are_refused_by_name_one_after_the_other(resumable: Path) -> None:
    checkpoints = resumable / "checkpoints"
    newest, before = (checkpoints / f"step-{step:08d}" for step in (12, 6))
    flip(newest / "trainer.pt", 500, 2)
    done = run(resumable.parent, "train", "--resume", "run", "--nproc", "1")
    must = (
        "step-00000012/trainer.pt differs from what was written|the one before is used: run/checkpoints/step-00000006"
    )
    check(done, Exit.DONE, f"checkpoint refused: run/checkpoints/{must}|resumed at step 6|done at step 12")
    done = run(resumable.parent, "train", "--resume", "run", "--nproc", "1")
    check(done, Exit.DONE, "resumed at step 12", "refused")
    (newest / "model.safetensors").unlink()
    (before / "manifest.json").write_text("{")
    done = run(resumable.parent, "train", "--resume", "run", "--nproc", "1")
    must = "step-00000012/model.safetensors is missing|step-00000006/manifest.json cannot be read"
    check(done, Exit.MISUSE, f"{must}|no whole checkpoint in run/checkpoints|start it anew in another folder")


# ---- a full disk ----


@pytest.mark.slow
def test_a_full_disk_loses_nothing_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    saves = ["options.hidden=64", "stop.epochs=2", "checkpoint.every_steps=2", "checkpoint.keep_last=20"]
    check(run(folder, "train", *POINTS, *saves, "run.dir=whole", *TWO), Exit.DONE, "done at step 12")
    with small_disk(folder / "run" / "checkpoints", "250k"):
        done = run(folder, "train", *POINTS, *saves, "run.dir=run", *TWO)
        full = "No space left on device|the last good one is step-00000006"
        check(done, Exit.FAILED, f"checkpoint of step 8 was not saved|{full}; training goes on|step 12: val/loss")
        check(done, Exit.FAILED, f"the last checkpoint (step 12) could not be saved|{full}|free the disk, then resume")
        remount(folder / "run" / "checkpoints", "size=4m")
        done = run(folder, "train", "--resume", "run", *TWO)
        check(done, Exit.DONE, "resumed at step 6|done at step 12", "not saved|refused")
    digests = [digest_of(folder / name) for name in ("whole", "run")]
    assert digests[0] == digests[1]


def digest_of(folder: Path) -> str:
    import json

    return str(json.loads((folder / "manifest.json").read_text())["weights_digest"])
