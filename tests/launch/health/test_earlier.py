from pathlib import Path

import pytest

from lockstep.launch import leftovers
from lockstep.launch.earlier import shm, strays
from lockstep.launch.earlier.strays import Stray
from lockstep.launch.health import earlier
from lockstep.launch.health.check import Asked


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "find", list)
    monkeypatch.setattr(shm, "leaked", list)
    monkeypatch.setattr(leftovers, "abandoned", list)


@pytest.mark.usefixtures("nothing")
def test_nothing_is_left() -> None:
    assert [check.status for check in earlier.checks(Asked())] == ["ok"]


@pytest.mark.usefixtures("nothing")
def test_everything_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "find", lambda: [Stray(7, 1, 60.0, "python train.py", "1", ("port 29500",))])
    monkeypatch.setattr(shm, "leaked", lambda: [shm.Segment(Path("/dev/shm/torch_1_2"), 2**20, 1)])
    monkeypatch.setattr(leftovers, "abandoned", lambda: [Path("/tmp/lockstep-a")])
    stray, memory, folders = earlier.checks(Asked())
    assert (stray.name, stray.status) == ("pid 7", "warn")
    assert stray.seen == "rank 1, 60 s old, holds port 29500: python train.py"
    assert memory.seen == "1 file in /dev/shm of which no process makes use, 1 MiB"
    assert folders.status == "ok"
