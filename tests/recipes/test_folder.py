import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lockstep.core.errors import UserError
from lockstep.recipes.folder import Folder
from lockstep.runtime.config import load_config
from tests.recipes.pictures import class_folder

SMALL: dict[str, Any] = {"size": 16, "width": 4, "depth": 2, "blocks": 1}
DIGITS = tuple("abcdefg")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return class_folder(tmp_path_factory.mktemp("digits"), DIGITS, train=6, val=2)


def test_a_folder_with_splits(root: Path) -> None:
    recipe = Folder(str(root), **SMALL)
    train, val = recipe.train_data(), recipe.val_data()
    assert val is not None and (len(train), len(val)) == (42, 14) and recipe.classes == list(DIGITS)
    assert recipe.floors() == {"accuracy": 1 / 7, "top5": 5 / 7}
    shutil.copytree(root / "train", root.with_name("bare") / "train")
    assert Folder(str(root.with_name("bare")), **SMALL).val_data() is None


def test_a_folder_without_splits_is_split_by_names(tmp_path: Path) -> None:
    root = class_folder(tmp_path, DIGITS[:3], train=20, val=0)
    recipe = Folder(str(root), **SMALL)
    train, val = recipe.train_data(), recipe.val_data()
    assert val is not None and len(train) + len(val) == 60 and 4 <= len(val) <= 20
    assert {sample.file for sample in train.samples}.isdisjoint(sample.file for sample in val.samples)
    assert Folder(str(root), val_share=0.0, **SMALL).val_data() is None
    assert recipe.floors()["accuracy"] == max(val.counts().values()) / len(val)


def test_loss_counts_metrics_and_labels(root: Path) -> None:
    recipe = Folder(str(root), **SMALL)
    batch: dict[str, Tensor] = next(iter(DataLoader(recipe.train_data(), 5)))
    term = recipe.loss(recipe.model(), batch)["cross_entropy"]
    assert term.count == recipe.counts(batch)["cross_entropy"] == 5 and term.sum.requires_grad
    metrics = recipe.metrics()
    recipe.evaluate(recipe.model(), batch, metrics)
    assert list(metrics) == ["accuracy", "top5"]
    assert not any(default.is_floating_point() for metric in metrics.values() for default in metric._defaults.values())
    assert recipe.labels(batch).num_classes == 7
    with torch.autocast("cpu", torch.bfloat16):
        assert recipe.loss(recipe.model(), batch)["cross_entropy"].sum.dtype == torch.float32


def test_few_classes_have_no_top5(tmp_path: Path) -> None:
    recipe = Folder(str(class_folder(tmp_path, DIGITS[:5], train=1, val=1)), **SMALL)
    assert list(recipe.metrics()) == list(recipe.floors()) == ["accuracy"]


def test_folders_that_are_wrong_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        Folder(str(tmp_path / "nowhere")).train_data()
    root = class_folder(tmp_path / "digits", DIGITS[:3], train=2, val=1)
    for picture in (root / "val").rglob("*.*"):
        picture.unlink()
    with pytest.raises(UserError, match="the folder val has no picture"):
        Folder(str(root)).train_data()
    for picture in (root / "train" / "b").iterdir():
        picture.unlink()
    shutil.rmtree(root / "val")
    with pytest.raises(UserError, match="1 of 3 folders of classes have no picture for training: b"):
        Folder(str(root)).train_data()


@pytest.mark.parametrize(
    "wrong",
    [{"val_share": 1.0}, {"size": 0}, {"flip": 2.0}, {"center": 0.0}, {"width": 0}, {"depth": 0}, {"blocks": 0}],
)
def test_impossible_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        Folder("anywhere", **wrong)


def test_the_packaged_config_is_valid() -> None:
    assert load_config(None, ["recipe=folder", "options.root=anywhere"]).best.metric == "val/accuracy"
