from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.recipes.files.splits import listed_names, read_split


def names(folder: Path, content: bytes) -> list[str]:
    (folder / "train.txt").write_bytes(content)
    return read_split(folder, "train")


def refusal(folder: Path, content: bytes) -> str:
    with pytest.raises(UserError) as caught:
        names(folder, content)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\n\r\nb", ["a", "b"]),
        (b"\xef\xbb\xbfa\rb\n\n\n", ["a", "b"]),
        (b"  a \n\tb.jpg\nc.d\n", ["a", "b", "c.d"]),
        ("Café\n東京/駅\nmy photo\n".encode(), ["Café", "東京/駅", "my photo"]),
        ("Cafe\u0301\n./x".encode(), ["Café", "x"]),
        ("a\x85b\u2028c\n".encode(), ["a\x85b\u2028c"]),
    ],
)
def test_names_are_read_as_people_write_them(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    assert names(tmp_path, content) == expected


@pytest.mark.parametrize("name", [b"/etc/passwd", b"../a", b"a/../../b", b"a\0b"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: bytes) -> None:
    words = refusal(tmp_path, b"ok\n" + name + b"\n")
    assert "in line 2" in words and "not absolute, without '..'" in words and f"{tmp_path}/train.txt:2" in words


def test_a_list_that_is_wrong_as_a_whole_is_refused(tmp_path: Path) -> None:
    assert "'a' twice, in lines 1 and 3" in refusal(tmp_path, b"a\nb\na.jpg\n")
    assert "names no sample" in refusal(tmp_path, b"\n \r\n")
    assert "not UTF-8 text (byte 0xe9 in line 2)" in refusal(tmp_path, b"a\ncaf\xe9\n")


def test_an_unknown_split_is_named_beside_those_there_are(tmp_path: Path) -> None:
    for name in ("train.txt", "trainval.txt", "aeroplane.md"):
        (tmp_path / name).write_text("a\n")
    with pytest.raises(UserError, match=r"no split 'trian'; there are 'train', 'trainval'(.|\n)*did you mean 'train'"):
        read_split(tmp_path, "trian")
    with pytest.raises(UserError, match=r"folder of the split lists .*nowhere does not exist"):
        read_split(tmp_path / "nowhere", "train")
    (tmp_path / "val.txt").mkdir()
    with pytest.raises(UserError, match=r"val\.txt cannot be read: is a directory"):
        read_split(tmp_path, "val")


def test_the_names_of_all_lists_pass_over_a_bad_one(tmp_path: Path) -> None:
    for name, content in (("train.txt", b"a\n"), ("val.txt", b"b\n"), ("bad.txt", b"c\nc\n"), ("d.md", b"d\n")):
        (tmp_path / name).write_bytes(content)
    assert listed_names(tmp_path) == {"a", "b"}
