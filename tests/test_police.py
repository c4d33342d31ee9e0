"""The police catches every kind of leak, cleans up behind it, and costs next to nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.police import REPO, clean_up, leaks, look

LEAKY = """
import os, signal, subprocess, sys, threading
from pathlib import Path

def test_clean(tmp_path, monkeypatch):
    monkeypatch.setenv("BORROWED", "1")
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", "pass"], check=True)

def test_process():
    subprocess.Popen(["sleep", "60"], start_new_session=True)

def test_orphan():
    subprocess.run(["sh", "-c", "sleep 61 >/dev/null 2>&1 &"], check=True)

def test_variable():
    os.environ["LEFT_BEHIND"] = "1"

def test_folder(tmp_path):
    os.chdir(tmp_path)

def test_thread():
    threading.Thread(target=threading.Event().wait, args=(4,)).start()

def test_handler():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def test_clean_again(tmp_path):
    assert "LEFT_BEHIND" not in os.environ
    assert Path.cwd() != tmp_path
"""

LEAKY_TORCH = """
import torch
import torch.distributed as dist

def test_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)

def test_dtype():
    torch.set_default_dtype(torch.float64)

def test_threads():
    torch.set_num_threads(torch.get_num_threads() + 1)

def test_grad_mode():
    torch.set_grad_enabled(False)

def test_clean():
    assert torch.get_default_dtype() == torch.float32
"""


def outcomes(tmp_path: Path, source: str) -> dict[str, str]:
    """Run `source` as a test module under the police: what pytest says of each test, by name."""
    (tmp_path / "conftest.py").write_text(
        "import tests.police\nfrom tests.conftest import police\ntests.police.GRACE_S = 0.3\n"
    )
    (tmp_path / "test_leaky.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPO), *sys.path]), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if "test_leaky.py::" in line]
    found: dict[str, str] = {}
    for word, rest in lines:
        if word in ("PASSED", "FAILED", "ERROR"):
            name, _, why = rest.partition("::")[2].partition(" - ")
            found[name] = f"{word} {why}" if word != "PASSED" else found.get(name, word)
    assert found, done.stdout + done.stderr
    return found


def test_every_leak_fails_its_own_test_and_no_other(tmp_path: Path) -> None:
    found = outcomes(tmp_path, LEAKY)
    caught = {name for name, outcome in found.items() if outcome.startswith("ERROR")}
    assert caught == {f"test_{leak}" for leak in ("process", "orphan", "variable", "folder", "thread", "handler")}


def test_leaks_of_torch_are_caught(tmp_path: Path) -> None:
    found = outcomes(tmp_path, LEAKY_TORCH)
    assert {name for name, outcome in found.items() if outcome == "PASSED"} == {"test_clean"}
    assert len(found) == 5


def test_a_leak_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.police.GRACE_S", 0.3)
    before = look()
    child = subprocess.Popen(["sleep", "62"])
    os.environ["LEFT_BEHIND"] = "1"
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    found = "\n".join(leaks(before))
    clean_up(before)
    assert child.wait() == -signal.SIGKILL
    assert signal.getsignal(signal.SIGTERM) == old
    assert "sleep 62" in found
    assert "environment variable LEFT_BEHIND: None became '1'" in found
    assert "handler of SIGTERM" in found
    assert not leaks(before)


@pytest.mark.parametrize(("name", "is_leak"), [("left.pt", True), ("run/left.jsonl", True), (".cache/left.pt", False)])
def test_files_in_the_repository_are_leaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_leak: bool
) -> None:
    monkeypatch.setattr("tests.police.REPO", tmp_path)
    monkeypatch.setattr("tests.police.GRACE_S", 0.3)
    before = look()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("weights")
    assert leaks(before) == ([f"file in the repository: {name}"] if is_leak else [])


def test_a_thread_that_ends_soon_is_no_leak() -> None:
    before = look()
    threading.Thread(target=time.sleep, args=(0.2,)).start()
    assert leaks(before) == []


def test_a_file_that_goes_by_itself_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.police.REPO", tmp_path)
    before = look()
    (tmp_path / "brief.pt").touch()
    later = threading.Timer(0.2, (tmp_path / "brief.pt").unlink)
    later.start()
    assert leaks(before) == []
    later.join()
