import errno
import os
from pathlib import Path

import pytest
from PIL import Image

from lockstep.core.errors import UserError
from lockstep.recipes.files import bad
from lockstep.recipes.files.bad import BadFile, decoding, relative, require_file, require_pillow, shown


def refusal(path: Path) -> str:
    with pytest.raises(BadFile) as caught:
        require_file(path)
    return caught.value.what


def test_what_is_no_file_is_told_apart(tmp_path: Path) -> None:
    for name in ("empty", "folder", "pipe", "loop", "dangling"):
        assert not (tmp_path / name).exists()
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("gone.jpg")
    assert refusal(tmp_path / "empty") == "is empty (0 bytes)"
    assert refusal(tmp_path / "folder") == "is a folder"
    assert refusal(tmp_path / "pipe") == "is no regular file"
    assert refusal(tmp_path / "loop") == "is a symbolic link that leads in a circle"
    assert refusal(tmp_path / "dangling") == "is a symbolic link to gone.jpg, which is not there"
    assert refusal(tmp_path / "absent") == "is missing: there is no such file"
    assert "name too long" in refusal(tmp_path / ("a" * 300)).lower()
    (tmp_path / "good").write_text("x")
    require_file(tmp_path / "good")


def test_errors_of_pillow_become_words_and_its_warnings_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    with pytest.raises(BadFile, match="truncated: it begins like a PNG"), decoding(path):
        Image.open(path)
    with pytest.raises(BadFile, match="is broken: odd"), decoding(path):
        raise SyntaxError("odd")
    with pytest.warns(UserWarning) as seen:
        import warnings

        with decoding(path):
            warnings.warn("Corrupt EXIF data", stacklevel=1)
        warnings.warn("the only one", stacklevel=1)
    assert [str(one.message) for one in seen] == ["the only one"]


def test_what_is_not_the_files_fault_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Too many open files"), decoding(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files")
    with pytest.raises(MemoryError), decoding(tmp_path):
        raise MemoryError


def test_the_error_names_file_sample_and_what_to_do(tmp_path: Path) -> None:
    error = BadFile(tmp_path / "JPEGImages" / "é.jpg", "is a folder").error(tmp_path, "sample 3 of train")
    assert isinstance(error, UserError)
    assert str(error).startswith("JPEGImages/é.jpg is a folder.\n  Must hold: a picture that Pillow can read")
    assert f"sample 3 of train, {tmp_path}/JPEGImages/é.jpg" in str(error) and "lockstep scan CONFIG" in str(error)


def test_a_name_that_is_no_unicode_can_be_printed(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    assert shown(name) == "caf\\xe9.jpg" and shown("café") == "café"
    assert relative(tmp_path / name, tmp_path) == "caf\\xe9.jpg" and relative(Path("/a/b"), tmp_path) == "/a/b"
    relative(tmp_path / name, tmp_path).encode()


def test_without_pillow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    require_pillow("voc")
    monkeypatch.setattr(bad, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"recipe voc reads pictures with Pillow(.|\n)*pip install pillow"):
        require_pillow("voc")
