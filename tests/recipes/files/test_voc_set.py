import os
import pickle
import random
import shutil
import unicodedata
import warnings
from pathlib import Path

import pytest
from PIL import Image

from lockstep.core.errors import UserError
from lockstep.recipes.files.images import Exif
from lockstep.recipes.files.scene_views import WholeScene
from lockstep.recipes.files.voc_set import VocSet
from tests.permissions import obey_permissions
from tests.ranks import run_ranks
from tests.recipes.pictures import FAULTS, ODD, STRAYS, TWELVE, UNREADABLE, plant, voc_folder

READABLE_BY_ROOT = sorted(FAULTS.keys() - UNREADABLE.keys())


def data(root: Path, split: str = "train", exif: Exif = "fit") -> VocSet:
    return VocSet(root, split, 5, 255, exif, WholeScene(64, 255))


def refusal(root: Path, split: str = "train") -> str:
    with pytest.raises(UserError) as caught:
        data(root, split)
    return str(caught.value)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody changes it."""
    return voc_folder(tmp_path_factory.mktemp("voc") / "sound")


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """To be spoilt."""
    return Path(shutil.copytree(sound, tmp_path / "voc"))


def test_samples_come_in_the_order_of_the_list(sound: Path) -> None:
    train, val = data(sound), data(sound, "val")
    assert (len(train), len(val)) == (8, 4)
    assert train.where(1) == "JPEGImages/2007_000001.jpg, SegmentationClass/2007_000001.png"
    assert val.where(0) == "JPEGImages/2007_000008.jpg, SegmentationClass/2007_000008.png"
    for index in range(8):
        sample = train[index]
        with Image.open(sound / train.where(index).split(", ")[1]) as mask:
            assert (sample["label"] != 255).sum() == sum(mask.histogram()[:5])
    assert list(train.strays()) == []
    with pytest.raises(IndexError, match="sample 8 of 8"):
        train[8]


def test_a_worker_can_have_a_copy(sound: Path) -> None:
    assert pickle.loads(pickle.dumps(data(sound)))[2]["label"].shape == (64, 64)


def test_nothing_is_opened_when_it_is_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, *READABLE_BY_ROOT)
    opened: list[object] = []
    monkeypatch.setattr(Image, "open", opened.append)
    stat = Path.stat
    looked: list[object] = []
    monkeypatch.setattr(Path, "stat", lambda path, **how: looked.append(path) or stat(path, **how))
    assert len(data(root)) == 8 + len(READABLE_BY_ROOT)
    assert opened == [] and len(looked) < 16


def test_every_fault_is_named_and_no_sound_sample_suffers(root: Path) -> None:
    planted = {one.index: one for one in plant(root, *READABLE_BY_ROOT)}
    train = data(root)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for index in range(len(train)):
            if index not in planted:
                train[index]
                continue
            with pytest.raises(UserError) as caught:
                train[index]
            words, bad = str(caught.value), planted[index]
            for said in (*bad.says, f"{bad.file} ", f"sample {index} of train", f"{root}/{bad.file}"):
                assert said in words, f"{bad.fault}: {said!r} is not in {words}"
            assert bad.file in train.where(index)
            assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert list(data(root, "val").strays()) == []


def test_what_teaches_nothing_can_be_read(root: Path) -> None:
    odd = plant(root, *ODD)
    assert (data(root)[odd[0].index or 0]["label"] == 255).all()


def test_a_mask_without_an_image_is_a_stray(root: Path) -> None:
    planted = plant(root, *STRAYS)
    assert list(data(root).strays()) == [(planted[0].file, "is a mask, and there is no image of its name")]
    first = next((root / "SegmentationClass").iterdir())
    shutil.copy(first, first.with_suffix(".bmp"))
    assert (f"SegmentationClass/{first.stem}.bmp", f"is not read: {first.name} has the same name") in list(
        data(root).strays()
    )


def test_a_planted_dozen_is_found_and_nothing_else(root: Path) -> None:
    planted = plant(root, *TWELVE)
    train = data(root)
    found = [path for path, _ in train.strays()]
    for index in range(len(train)):
        try:
            train[index]
        except UserError as error:
            found.append(str(error).split(" ")[0])
    assert sorted(found) == sorted(one.file for one in planted) and len(found) == 12


def read_unreadable(root: str, index: int) -> str:
    obey_permissions()
    try:
        data(Path(root))[index]
    except UserError as error:
        return str(error)
    return "it could be read"


def test_a_file_without_permission_is_named(root: Path) -> None:
    planted = plant(root, *UNREADABLE)[0]
    words = run_ranks(read_unreadable, 1, str(root), planted.index)[0]
    assert f"{planted.file} cannot be read: permission denied" in words


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("listed", ["NFC", "NFD"])
def test_names_beyond_ascii_are_found_in_either_form(root: Path, form: str, listed: str) -> None:
    name = "Straße Café 東京"
    for folder, suffix in (("JPEGImages", "jpg"), ("SegmentationClass", "png")):
        sound = root / folder / f"2007_000000.{suffix}"
        sound.rename(sound.with_name(unicodedata.normalize(form, name) + f".{suffix}"))
    lines = root / "ImageSets" / "Segmentation" / "train.txt"
    lines.write_text(
        lines.read_text().replace("2007_000000", unicodedata.normalize(listed, name)), encoding="utf-8", newline="\r\n"
    )
    assert data(root)[0]["label"].shape == (64, 64)
    (root / data(root).where(0).split(", ")[0]).write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        data(root)[0]


def test_other_kinds_of_pictures_and_folders_of_them_are_found(root: Path) -> None:
    image = root / "JPEGImages" / "2007_000003.jpg"
    with Image.open(image) as opened:
        opened.save(root / "JPEGImages" / "2007_000003.PNG")
    image.unlink()
    for folder, suffix in (("JPEGImages", "jpg"), ("SegmentationClass", "png")):
        (root / folder / "berlin").mkdir()
        (root / folder / f"2007_000004.{suffix}").rename(root / folder / "berlin" / f"4.{suffix}")
    lines = root / "ImageSets" / "Segmentation" / "train.txt"
    lines.write_text(lines.read_text().replace("2007_000004", "berlin/4"))
    assert data(root).where(3).startswith("JPEGImages/2007_000003.PNG,") and data(root)[3]
    assert data(root).where(4) == "JPEGImages/berlin/4.jpg, SegmentationClass/berlin/4.png" and data(root)[4]


def test_a_name_that_is_no_unicode_does_not_break_anything(root: Path) -> None:
    odd = os.fsencode(root / "SegmentationClass") + b"/caf\xe9.png"
    with open(odd, "wb"):  # noqa: PTH123  # no name that Path would print
        pass
    strays = list(data(root).strays())
    assert strays == [("SegmentationClass/caf\\xe9.png", "is a mask, and there is no image of its name")]


def test_a_folder_that_is_wrong_as_a_whole_is_refused(root: Path, tmp_path: Path) -> None:
    assert f"{tmp_path}/vco does not exist" in refusal(tmp_path / "vco")
    assert f"did you mean {tmp_path}/voc?" in refusal(tmp_path / "vco")
    assert f"set options.root={root}" in refusal(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "has a folder JPEGImages" in refusal(tmp_path / "empty")
    assert "there is no split 'trian'" in refusal(root, "trian")
    (root / "ImageSets" / "Segmentation" / "train.txt").write_text("x\ny\n")
    assert "none of the 2 names in train.txt has a picture, not even 'x'" in refusal(root)


def test_whatever_bytes_a_file_holds_it_is_read_or_named(root: Path) -> None:
    rng = random.Random(0)
    train = data(root)
    files = [root / name for name in train.where(0).split(", ")]
    sound = [file.read_bytes() for file in files]
    named = 0
    for _ in range(150):
        for file, content in zip(files, sound, strict=True):
            file.write_bytes(content)
        spoilt = bytearray(files[rng.randrange(2)].read_bytes())
        for _ in range(rng.choice((1, 5, 30))):
            spoilt[rng.randrange(min(len(spoilt), rng.choice((40, 10_000))))] = rng.randrange(256)
        rng.choice(files).write_bytes(spoilt[: rng.choice((len(spoilt), rng.randrange(len(spoilt))))])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                train[0]
            except UserError as error:
                named += str(error).startswith(tuple(train.where(0).split(", ")))
    assert 75 < named < 150
