"""`--clean` on what is this test's own: a real stray, a shared-memory file, a folder of a launcher that is gone."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest

from lockstep.launch.earlier import cleaning, procfs, shm, strays
from lockstep.launch.earlier.strays import Stray
from tests.launch.outliving import leave_holder, wait_for
from tests.ranks import PRELOAD


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pids that may be found: whatever else this user has left is none of a test's business."""
    pids: list[int] = []
    find = strays.find

    def only_ours(ask_driver: bool = True) -> list[Stray]:
        return [stray for stray in find(ask_driver) if stray.pid in pids]

    monkeypatch.setattr(strays, "find", only_ours)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(shm, "FOLDER", tmp_path / "shm")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "shm").mkdir()
    return pids


def test_everything_is_shown_then_ended_and_removed(tmp_path: Path, own: list[int]) -> None:
    if os.getpid() == 1:
        pytest.skip("orphans would come back to this very process")
    (tmp_path / "shm/torch_999999999_1_0").write_bytes(b"x" * 2**20)
    if not shm.leaked():
        pytest.skip("another program uses torch's file_system strategy")
    (tmp_path / "tmp/lockstep-gone/0").mkdir(parents=True)
    (tmp_path / "tmp/lockstep-gone/.launch").touch()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    record = str(tmp_path / "records/lockstep-abc/0/rank-0.crash.txt")
    starter = context.Process(target=leave_holder, args=(record, str(tmp_path / "left")))
    starter.start()
    starter.join()
    starter.close()
    own.append(int(wait_for(tmp_path / "left")))
    said: list[str] = []
    assert cleaning.clean(said.append) == []
    assert [line.partition(":")[0] for line in said] == ["found", "ended", "removed", "removed"]
    assert said[0].startswith(f"found: pid {own[0]}, started by a rank, ")
    assert "1.0 MiB of shared memory" in said[2]
    assert procfs.look(own[0]) is None
    assert [*(tmp_path / "shm").iterdir(), *(tmp_path / "tmp").glob("lockstep-*")] == []


@pytest.mark.usefixtures("own")
def test_nothing_to_do() -> None:
    said: list[str] = []
    assert cleaning.clean(said.append) == []
    assert said == []


def test_what_could_not_be_ended_is_said(own: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    stray = Stray(own[0] if own else 7, 1, 60.0, "python train.py", "0", ("port 1",))
    monkeypatch.setattr(strays, "find", lambda: [stray])
    monkeypatch.setattr(strays, "end", lambda found: [])
    said: list[str] = []
    assert cleaning.clean(said.append) == [stray]
    assert said[-1] == "not ended: pid 7"
