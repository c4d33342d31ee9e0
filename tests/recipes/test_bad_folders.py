"""Folders and files that are wrong, through the real `lockstep train`: exit code 2, the file named, nothing of ours."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lockstep
from lockstep.core.outcome import Exit
from tests.commands import Command, Done
from tests.permissions import obey_permissions
from tests.recipes.pictures import UNREADABLE, class_folder, plant, voc_folder

OURS = str(Path(lockstep.__file__).parent)
QUICK = ["--nproc", "1", "log.tensorboard=off", "run.threads=1", "precision=fp32", "stop.epochs=1"]
NET = ["options.width=4", "options.depth=2", "options.blocks=1", "batch.global_batch=4"]
VOC = ["recipe=voc", "options.classes=5", "options.crop=32", "options.eval_size=64", *NET, *QUICK]
FOLDER = ["recipe=folder", "options.size=16", *NET, *QUICK]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound")
    voc_folder(root / "voc")
    class_folder(root / "digits", train=4, val=2)
    return root


def train(tmp_path: Path, *argv: str, before: Callable[[], None] | None = None) -> Done:
    return Command(tmp_path / "here", "train", *argv, before=before).wait()


def check(done: Done, must: str) -> None:
    """`must` is words with `|` between them."""
    assert done.code == Exit.MISUSE, done.output
    for words in must.split("|"):
        assert words in done.output, f"{words!r} is not in:\n{done.output}"
    for words in ("Traceback", OURS, "src/lockstep", "site-packages", "Warning"):
        assert words not in done.output, f"{words!r} is in:\n{done.output}"


WHOLE = [
    ("root missing", [*VOC, "options.root=vco"], "the folder of the data set vco does not exist|did you mean voc?"),
    (
        "split unknown",
        [*VOC, "options.root=voc", "options.train_split=trian"],
        "no split 'trian'|did you mean 'train'?",
    ),
    ("class without pictures", [*FOLDER, "options.root=digits"], "1 of 4 folders of classes|: void"),
]


@pytest.mark.parametrize(("argv", "must"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])
def test_a_folder_that_is_wrong_as_a_whole(sound: Path, tmp_path: Path, argv: list[str], must: str) -> None:
    here = Path(shutil.copytree(sound, tmp_path / "here"))
    if "void" in must:
        (here / "digits" / "train" / "void").mkdir()
    check(train(tmp_path, *argv), must)


@pytest.mark.parametrize("fault", ["image_truncated", "mask_label_outside"])
def test_a_bad_file_is_named_by_training(sound: Path, tmp_path: Path, fault: str) -> None:
    root = Path(shutil.copytree(sound / "voc", tmp_path / "voc"))
    planted = plant(root, fault)[0]
    done = train(tmp_path, *VOC, f"options.root={root}")
    check(
        done, "|".join([*planted.says, f"{planted.file} ", f"sample {planted.index} of train", "lockstep scan CONFIG"])
    )


def test_a_bad_file_is_named_by_a_worker_and_by_evaluation(sound: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(sound / "digits", tmp_path / "digits"))
    (root / "val" / "one" / "one_005.png").write_bytes(b"")
    done = train(tmp_path, *FOLDER, f"options.root={root}", "data.workers=1")
    check(done, "val/one/one_005.png is empty (0 bytes)|of val")


def test_a_file_without_permission_is_named(sound: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(sound / "voc", tmp_path / "voc"))
    planted = plant(root, *UNREADABLE)[0]
    done = train(tmp_path, *VOC, f"options.root={root}", before=obey_permissions)
    check(done, f"{planted.file} cannot be read: permission denied")
