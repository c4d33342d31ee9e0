"""What is told of files, and what is not."""

import io
import os
import shutil
from pathlib import Path

import torch

from lockstep.trace.events import Event, File
from lockstep.trace.hooks import files
from tests.trace.hooks.recorded import recorded


def told(events: list[Event], work: Path) -> list[tuple[str, str]]:
    """Kind and name of each."""
    return [(one.op, os.path.relpath(one.path, work)) for one in events if isinstance(one, File)]


def _save_and_load() -> None:
    torch.save({"a": 1}, "a.pt")
    torch.save({"a": 2}, Path("a.pt"))
    torch.load("a.pt", map_location="cpu")
    with Path("b.pt").open("wb") as file:
        torch.save({}, file)
    torch.save({}, io.BytesIO())


def test_save_and_load(tmp_path: Path) -> None:
    events = recorded(tmp_path, "files", _save_and_load)
    names = [("save", "a.pt"), ("save", "a.pt"), ("load", "a.pt"), ("write", "b.pt"), ("save", "b.pt")]
    assert told(events, tmp_path / "work") == names
    first, second, load = (one for one in events[:3] if isinstance(one, File))
    assert (first.exists, second.exists) == (False, True)
    assert load.map_location == "cpu"
    assert 0 < first.time <= first.end <= second.time
    assert all(one.at.startswith(f"{__file__}:") for one in events)


def _save_where_no_folder_is() -> None:
    try:
        torch.save({}, "nowhere/a.pt")
    except RuntimeError:
        return
    raise AssertionError("no error")


def test_a_save_that_fails(tmp_path: Path) -> None:
    (event,) = recorded(tmp_path, "files", _save_where_no_folder_is)
    assert isinstance(event, File) and event.end == 0.0


def _touch() -> None:
    Path("runs").mkdir()
    Path("runs/log").write_text("a")
    with Path("runs/log").open("a") as file:
        file.write("b")
    for _ in range(3):
        Path("runs/log").read_text()
    Path("runs/log").replace("runs/old")
    Path("runs/latest").symlink_to("old")
    Path("runs/old").unlink()
    shutil.rmtree("runs")


def test_touches(tmp_path: Path) -> None:
    events = recorded(tmp_path, "files", _touch)
    assert told(events, tmp_path / "work") == [
        ("mkdir", "runs"),
        ("write", "runs/log"),
        ("write", "runs/log"),
        ("read", "runs/log"),
        ("rename", "runs/log"),
        ("write", "runs/latest"),
        ("remove", "runs/old"),
        ("remove", "runs"),
    ]
    assert [one.append for one in events if isinstance(one, File) and one.op == "write"] == [False, True, False]
    (move,) = (one for one in events if isinstance(one, File) and one.op == "rename")
    assert move.target == str(tmp_path / "work/runs/old")


def _not_the_users(data: str, trace: str) -> None:
    for path in (__file__, os.__file__, "/proc/self/status", "/dev/null", data):
        Path(path).read_bytes()
    Path("/dev/null").write_text("")
    Path(trace, "mine").write_text("")
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w"):
        pass
    if os.fork() == 0:
        Path("child").write_text("")
        os._exit(0)
    os.wait()


def test_not_the_users(tmp_path: Path) -> None:
    data = tmp_path / "data"  # far from the working directory: may be millions of files
    data.write_text("")
    assert recorded(tmp_path, "files", _not_the_users, str(data), str(tmp_path / "trace")) == []


def _data_beside_what_was_written(folder: str) -> None:
    Path(folder, "made").write_text("")
    Path(folder, "other").read_text()


def test_a_folder_that_the_script_wrote_to(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "other").write_text("")
    events = recorded(tmp_path, "files", _data_beside_what_was_written, str(folder))
    assert told(events, folder) == [("write", "made"), ("read", "other")]


def _many() -> None:
    for number in range(files.MOST_READS + 10):
        Path(f"{number}").touch()
        Path(f"{number}").read_text()


def test_readings_are_bounded(tmp_path: Path) -> None:
    events = recorded(tmp_path, "files", _many)
    assert sum(op == "read" for op, _ in told(events, tmp_path)) == files.MOST_READS


def _raises_and_saves() -> None:
    for path in ("a\0b", "missing", ""):
        try:
            open(path).close()  # noqa: PTH123
        except (ValueError, OSError):
            continue
        raise AssertionError("no error")
    torch.save({}, "a.pt")


def test_the_script_sees_its_own_errors_only(tmp_path: Path) -> None:
    assert told(recorded(tmp_path, "files", _raises_and_saves), tmp_path / "work")[-1] == ("save", "a.pt")
