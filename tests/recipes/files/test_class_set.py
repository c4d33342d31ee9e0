import shutil
import unicodedata
from pathlib import Path

import pytest
import torch

from lockstep.core.errors import UserError
from lockstep.recipes.files.class_set import (
    ClassSet,
    Labelled,
    class_names,
    held_out,
    labelled,
    require_every_class,
)
from lockstep.recipes.files.class_views import Middle
from tests.recipes.pictures import class_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return class_folder(tmp_path / "digits", ("zero", "one", "two"), train=4, val=2)


def data(root: Path) -> ClassSet:
    return ClassSet(root, labelled(root, "train", class_names(root / "train")), Middle(16, 1.0), "train")


def test_classes_are_numbered_by_name_and_samples_sorted(root: Path) -> None:
    assert class_names(root / "train") == ["one", "two", "zero"]
    train = data(root)
    assert [train.where(index) for index in (0, 1, 4)] == [
        "train/one/one_000.jpg",
        "train/one/one_001.png",
        "train/two/two_000.jpg",
    ]
    assert train[5]["label"] == torch.tensor(1) and train[5]["image"].shape == (3, 16, 16)
    assert train.counts() == {0: 4, 1: 4, 2: 4} and list(train.strays()) == []
    with pytest.raises(IndexError, match="sample 12 of 12"):
        train[12]


def test_what_is_not_read_is_a_stray(root: Path) -> None:
    (root / "train" / "one" / "notes.txt").touch()
    (root / "train" / "one" / ".DS_Store").touch()
    (root / "train" / "two" / "more").mkdir()
    assert list(data(root).strays()) == [
        ("train/one/notes.txt", "is not called like a picture, and is not read"),
        ("train/two/more", "is a folder in the folder of a class, and is not read"),
    ]


def test_a_bad_file_is_named_when_it_is_read(root: Path) -> None:
    (root / "train" / "one" / "one_001.png").write_bytes(b"")
    (root / "train" / "one" / "a.jpg").mkdir()
    (root / "train" / "one" / "b.jpg").symlink_to("b.jpg")
    train, found = data(root), []
    for index in range(len(train)):
        try:
            train[index]
        except UserError as error:
            found.append(str(error).splitlines()[0])
            assert f"sample {index} of train" in str(error)
    assert found == [
        "train/one/a.jpg is a folder.",
        "train/one/b.jpg is a symbolic link that leads in a circle.",
        "train/one/one_001.png is empty (0 bytes).",
    ]


def test_links_that_lead_in_a_circle_are_no_classes(root: Path) -> None:
    (root / "train" / "loop").symlink_to("loop")
    assert class_names(root / "train") == ["one", "two", "zero"]
    (root / "train" / "up").symlink_to("..")
    classes = class_names(root / "train")
    assert "up" in classes
    with pytest.raises(UserError, match=r"1 of 4 folders of classes have no picture for training: up"):
        require_every_class(labelled(root, "train", classes), classes, root)


def test_a_folder_that_is_wrong_as_a_whole_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no folder of a class"):
        class_names(tmp_path / "empty")
    shutil.rmtree(root / "train" / "one")
    shutil.rmtree(root / "train" / "two")
    with pytest.raises(UserError, match="has one class, 'zero'") as caught:
        class_names(root / "train")
    assert "deeper" not in str(caught.value)
    (tmp_path / "above").mkdir()
    shutil.copytree(root, tmp_path / "above" / "pictures")
    with pytest.raises(UserError, match=r"one folder deeper: \S+/above/pictures$"):
        class_names(tmp_path / "above")
    (root / "val" / "ones").mkdir()
    with pytest.raises(UserError, match=r"val/ones is a class that has no pictures for training(.|\n)*mean one"):
        labelled(root, "val", ["one", "two", "zero"])


def test_the_name_alone_decides_what_is_held_out() -> None:
    samples = [Labelled(f"a/{number}.jpg", 0) for number in range(2000)]
    chosen = list(map(held_out(0.2), samples))
    assert 340 < sum(chosen) < 460 and chosen == list(map(held_out(0.2), samples))
    assert not any(map(held_out(0.0), samples))
    # More pictures move nobody to the other side, nor does a disk that composes names in another way.
    assert [held_out(0.2)(Labelled(one.file, 7)) for one in samples[::9]] == chosen[::9]
    names = [f"Café {number}.jpg" for number in range(50)]
    both = [[held_out(0.5)(Labelled(unicodedata.normalize(form, n), 0)) for n in names] for form in ("NFC", "NFD")]
    assert both[0] == both[1]
