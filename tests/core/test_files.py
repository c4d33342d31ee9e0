"""A file is whole or absent, whatever happens while it is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.core import files
from lockstep.core.errors import UserError
from lockstep.core.files import (
    check_writable,
    flush,
    in_use,
    put_asked,
    put_text,
    rename_durably,
    reserve_folder,
    write_text,
)


def test_text_is_written_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    for text in ("one", "zwei äöü €", ""):
        write_text(path, text)
        assert path.read_text(encoding="utf-8") == text
        assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]


def test_content_is_on_disk_before_the_name_and_the_name_before_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    names = Path("/proc/self/fd")
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(f"sync {(names / str(descriptor)).readlink()}"))
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (done.append(f"rename {to}"), replace(self, to))[1])
    write_text(tmp_path / "f", "text")
    assert [line.split(" ")[0] for line in done] == ["sync", "rename", "sync"]
    assert done[0].split(" ")[1] != str(tmp_path / "f")
    assert done[1] == f"rename {tmp_path / 'f'}"
    assert done[2] == f"sync {tmp_path}"


@pytest.mark.parametrize("fails", ["flush", "rename_durably"])
def test_a_failed_write_leaves_the_old_content_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "f"
    write_text(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, fails, full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_rename_replaces_a_file_and_moves_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    rename_durably(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "new"
    assert not (tmp_path / "a").exists()
    (tmp_path / "folder").mkdir()
    rename_durably(tmp_path / "folder", tmp_path / "moved")
    assert (tmp_path / "moved").is_dir()


def test_flush_closes_what_it_opens(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        flush(tmp_path)
    with pytest.raises(FileNotFoundError):
        flush(tmp_path / "none")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


WRITE = """
import sys
from pathlib import Path
from lockstep.core.files import write_text
for _ in range(200):
    write_text(Path(sys.argv[1]), sys.argv[2] * 100_000)
"""


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_text(path, "a" * 100_000)
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), letter]) for letter in "ab"]
    seen = set()
    while any(one.poll() is None for one in writers):
        text = path.read_text()
        seen.add((len(text), len(set(text))))
    assert [one.returncode for one in writers] == [0, 0]
    assert seen == {(100_000, 1)}
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_a_folder_of_its_own(tmp_path: Path) -> None:
    wanted = tmp_path / "runs" / "a-1"
    assert [reserve_folder(wanted, "x=DIR").name for _ in range(3)] == ["a-1", "a-1-2", "a-1-3"]
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made: Not a directory"):
        reserve_folder(tmp_path / "file" / "a", "x=DIR")


def test_a_folder_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    taken = pytest.raises(UserError, match=f"is in use, by pid {os.getpid()}")
    with in_use(tmp_path / "run", "a run"), taken, in_use(tmp_path / "run", "a run"):
        pass
    with in_use(tmp_path / "run", "a run"):
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".in-use"]
    assert list((tmp_path / "run").iterdir()) == []


def test_a_process_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    text = "import sys, time, pathlib; from lockstep.core.files import in_use\n"
    text += "with in_use(pathlib.Path(sys.argv[1]), 'a run'):\n    print('in', flush=True); time.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", text, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UserError, match=f"pid {other.pid}"), in_use(tmp_path, "a run"):
            pass
        other.kill()
        other.wait()
    with in_use(tmp_path, "a run"):
        pass


def test_what_is_no_ordinary_file_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    put_asked(tmp_path / "link", "new", "--json")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    put_text(tmp_path / "fresh", "text")
    assert (tmp_path / "fresh").read_text() == "text"


def test_a_file_that_was_asked_for_and_cannot_be_written(tmp_path: Path) -> None:
    for write in (lambda path: put_asked(path, "x", "--json"), lambda path: check_writable(path, "--json")):
        with pytest.raises(UserError, match=r"(?s)cannot be written.*--json"):
            write(tmp_path / "nowhere" / "file")
    check_writable(tmp_path / "begun", "--json")
    assert (tmp_path / "begun").exists()
