"""Only what nobody can still want is taken for leaked: made by real processes with torch's `file_system` strategy."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.launch.earlier import procfs, shm
from tests.police import MARK

CODE = """
import time, torch, torch.multiprocessing
torch.multiprocessing.set_sharing_strategy("file_system")
shared = torch.ones(1 << 18).share_memory_()
print(flush=True)
time.sleep(300)
"""


def managers(ours: bool) -> list[int]:
    found = [one for one in procfs.processes().values() if "torch_shm_manager" in one.command]
    return [one.pid for one in found if (one.variables().get(MARK) == str(os.getpid())) == ours]


@pytest.fixture
def maker() -> Iterator[subprocess.Popen[bytes]]:
    if managers(ours=False):
        pytest.skip("another program uses torch's file_system strategy: nothing counts as leaked meanwhile")
    if not shm.FOLDER.is_dir():
        pytest.skip(f"no {shm.FOLDER}")
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
    for pid in managers(ours=True):
        os.kill(pid, signal.SIGKILL)


def of(pid: int) -> list[shm.Segment]:
    return [segment for segment in shm.leaked() if segment.path.name.startswith(f"torch_{pid}_")]


def test_a_file_without_maker_user_and_manager_is_leaked(maker: subprocess.Popen[bytes]) -> None:
    assert of(maker.pid) == [], "its maker lives"
    assert list(shm.FOLDER.glob(f"torch_{maker.pid}_*")), "torch makes such files no more: this test is void"
    for pid in managers(ours=True):
        process = psutil.Process(pid)
        process.kill()
    assert of(maker.pid) == [], "its maker lives"
    maker.kill()
    maker.wait()
    segments = of(maker.pid)
    assert [segment.num_bytes >= 2**20 for segment in segments] == [True]
    assert shm.remove(segments) == segments
    assert of(maker.pid) == []
    assert shm.remove(segments) == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shm, "FOLDER", tmp_path)
    return tmp_path


def test_a_file_that_a_process_has_mapped_is_in_use(folder: Path) -> None:
    import mmap

    path = folder / "torch_999999999_1_0"
    path.write_bytes(b"x" * 8192)
    if not shm.leaked():
        pytest.skip("another program uses torch's file_system strategy")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8192):
        assert shm.leaked() == []
    assert [segment.path for segment in shm.leaked()] == [path]


def test_other_names_and_living_makers_are_left_alone(folder: Path) -> None:
    for name in ("torch_mine", "sem.mp-x", f"torch_{os.getpid()}_1_0"):
        (folder / name).touch()
    assert shm.leaked() == []


def test_a_file_that_was_replaced_is_left_alone(folder: Path) -> None:
    path = folder / "torch_999999999_1_0"
    path.touch()
    segment = shm.Segment(path, 0, path.stat().st_ino + 1)
    assert shm.remove([segment]) == []
    assert path.exists()
