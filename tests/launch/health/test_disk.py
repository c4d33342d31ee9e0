import tempfile
from pathlib import Path

import pytest

from lockstep.launch.health import disk
from lockstep.launch.health.check import Asked

GIB = 2**30


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    check = disk.folder(tmp_path, "working folder")
    assert check.status in ("ok", "warn")
    assert check.seen.startswith(f"{tmp_path} can be written, ")
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "nowhere"):
        check = disk.folder(path, "temporary folder")
        assert (check.status, check.advice) == ("fail", "set TMPDIR to another folder")


@pytest.mark.parametrize(
    ("free", "left", "status"),
    [(9 * GIB, 1000, "ok"), (GIB // 2, 1000, "warn"), (1000, 1000, "fail"), (GIB, 5, "fail")],
)
def test_space(free: int, left: int, status: str) -> None:
    assert disk.judge("/x", "working folder", free, 2000, left).status == status


def test_a_disk_that_does_not_count_files() -> None:
    assert disk.judge("/x", "working folder", 9 * GIB, 0, 0).status == "ok"


def test_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert [check.status for check in disk.checks(Asked())][1] == "fail"
