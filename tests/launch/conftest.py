"""Launchers as processes of their own, started from one that has imported torch."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep.launch.leftovers import sweep

REPO = Path(__file__).resolve().parents[2]


class Server:
    """The other end of `driver.py`."""

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.launch.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": f"{REPO / 'src'}{os.pathsep}{REPO}"},
        )

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def sweep(self) -> None:
        """Remove what a killed launcher has left, as the next launcher does."""
        deadline = time.monotonic() + 2  # the last thread of a killed process may hold files for a moment
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(self.temporary))
            while list(self.temporary.iterdir()) and time.monotonic() < deadline:
                sweep()
                time.sleep(0.01)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


class Launcher:
    """One launcher that runs."""

    def __init__(self, server: Server, folder: Path, target: str, *args: Any, **options: Any) -> None:
        self.server, self.folder, self.work_dir = server, folder, folder / "run"
        self.num_ranks = options.get("num_ranks", 2)
        request = {
            "target": target,
            "args": args,
            "num_ranks": self.num_ranks,
            "start_method": options.get("start_method", "auto"),
            "alone": options.get("alone", False),
            "work_dir": str(self.work_dir),
            "stdout": str(folder / "stdout"),
            "stderr": str(folder / "stderr"),
        }
        self.pid: int = server.ask(do="start", **request)
        self.code: int | None = None

    def until_ready(self, timeout_s: float = 30) -> list[psutil.Process]:
        """Wait until every rank says that it is ready. Returns the ranks, in order."""
        deadline = time.monotonic() + timeout_s
        while len(self.ready()) < self.num_ranks:
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.01)
        ranks = [one for one in psutil.Process(self.pid).children() if os.getpgid(one.pid) == one.pid]
        return sorted(ranks, key=lambda rank: rank.create_time())

    def ready(self) -> list[int]:
        """The ranks that have said so."""
        return sorted(int(path.name.removeprefix("ready-")) for path in self.folder.glob("ready-*"))

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def wait(self, timeout_s: float = 30) -> int:
        """Returns the exit code."""
        self.code = self.server.ask(do="wait", pid=self.pid, timeout_s=timeout_s)
        assert self.code is not None, f"still running after {timeout_s} s\n{self.stderr}"
        return self.code

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text()


Launch = Callable[..., Launcher]


@pytest.fixture(scope="session")
def launch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("launch-tmp"))
    yield server
    server.close()


@pytest.fixture
def launch(launch_server: Server, tmp_path: Path) -> Iterator[Launch]:
    """Start `launch(target, *args, num_ranks=2, start_method="auto")`; what it leaves behind fails the test."""
    started: list[Launcher] = []

    def start(target: str, *args: Any, **options: Any) -> Launcher:
        started.append(Launcher(launch_server, tmp_path, target, *args, **options))
        return started[-1]

    yield start
    for launcher in started:
        if launcher.code is None:
            psutil.Process(launcher.pid).kill()
            launcher.wait()
    if any(launcher.code == -signal.SIGKILL for launcher in started):
        launch_server.sweep()
    assert list(launch_server.temporary.iterdir()) == []


def still_alive(processes: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that have not ended in time. A zombie has ended: only its parent's reading of the code is missing."""
    deadline = time.monotonic() + timeout_s
    while (processes := [it for it in processes if _lives(it)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return processes


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
