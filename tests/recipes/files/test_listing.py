import os
import unicodedata
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.recipes.files.listing import LOSSLESS, Pictures, entries, is_picture, plain, require_folder, stem

COMPOSED, APART = (unicodedata.normalize(form, "Café") for form in ("NFC", "NFD"))


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_names_are_sorted_alike_however_they_are_composed(tmp_path: Path) -> None:
    assert COMPOSED != APART and plain(APART) == COMPOSED
    first = entries(touch(tmp_path / "a", "b.jpg", f"{COMPOSED}.jpg", "Cafz.jpg"))
    second = entries(touch(tmp_path / "b", "b.jpg", f"{APART}.jpg", "Cafz.jpg"))
    assert first == list(map(plain, second)) == ["Cafz.jpg", f"{COMPOSED}.jpg", "b.jpg"]


def test_a_picture_is_known_by_its_name() -> None:
    assert is_picture("a.JPG") and is_picture("b.c.webp")
    assert not is_picture("a.txt") and not is_picture("._a.jpg") and not is_picture("jpg")
    assert stem("a.b.jpeg") == "a.b" and stem("a.b") == "a.b"


def test_a_name_finds_its_file_in_any_form_and_folder(tmp_path: Path) -> None:
    pictures = Pictures(touch(tmp_path, f"{APART}.JPG", "two.png", "two.jpg", "city/a.jpg", "notes.txt"))
    assert pictures.find(COMPOSED) == f"{APART}.JPG"
    assert pictures.find("two") == "two.jpg" and pictures.all()["two"] == ["two.jpg", "two.png"]
    assert Pictures(touch(tmp_path, "two.bmp"), LOSSLESS).all()["two"] == ["two.png", "two.bmp"]
    assert pictures.find("city/a") == "city/a.jpg"
    assert pictures.find("notes") is pictures.find("nowhere/a") is None


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = Pictures(touch(tmp_path, *(f"{i}.jpg" for i in range(50))))
    listed: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert all(pictures.find(str(i)) for i in range(50)) and len(listed) == 1


def test_what_is_no_folder_is_refused_and_a_near_one_named(tmp_path: Path) -> None:
    touch(tmp_path, "VOC2012/a", "file")
    (tmp_path / "loop").symlink_to("loop")
    require_folder(tmp_path / "VOC2012", "the folder")
    for name, words in (
        ("VOC2102", "does not exist(.|\n)*did you mean .*VOC2012?"),
        ("file", "is no folder"),
        ("loop", "does not exist|cannot be reached"),
        ("a/b/c", "does not exist(.|\n)*check the path"),
    ):
        with pytest.raises(UserError, match=words):
            require_folder(tmp_path / name, "the folder")
