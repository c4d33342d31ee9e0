"""Ranks that outlive their launcher are found, whoever else is left alone, and only what was seen is ended."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lockstep.launch.earlier import procfs, strays
from lockstep.launch.earlier.strays import Stray
from tests.commands import Command
from tests.launch.outliving import SCRIPT, TORCHRUN, hold_record, leave_holder, wait_for
from tests.ranks import PRELOAD

if os.getpid() == 1:
    pytest.skip("orphans would come back to this very process", allow_module_level=True)


def found(pids: set[int]) -> dict[int, Stray]:
    return {stray.pid: stray for stray in strays.find() if stray.pid in pids}


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], set[int]]]:
    """torchrun with two ranks, and the pids of these and of their workers."""
    (tmp_path / "train.py").write_text(SCRIPT)
    with subprocess.Popen([*TORCHRUN, str(tmp_path / "train.py"), str(tmp_path)], stderr=subprocess.DEVNULL) as run:
        workers = {int(wait_for(tmp_path / f"rank-{rank}")) for rank in (0, 1)}
        ranks = {psutil.Process(pid).ppid() for pid in workers}
        yield run, ranks | workers
        run.kill()
        for pid in ranks | workers:
            with_pid = procfs.look(pid)
            if with_pid is not None:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def bystander(tmp_path: Path) -> Iterator[int]:
    """A process of this user that looks the same in `ps`: the same program, the same arguments."""
    command = [
        sys.executable,
        "-c",
        "import torch, time; print(flush=True); time.sleep(300)",
        "train.py",
        "--rank",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_ranks_of_a_killed_torchrun(torchrun: tuple[subprocess.Popen[bytes], set[int]], bystander: int) -> None:
    run, pids = torchrun
    assert found(pids) == {}, "its launcher lives"
    run.kill()
    run.wait()
    seen = found(pids | {bystander})
    assert seen.keys() == pids
    assert {seen[pid].rank for pid in pids} == {"0", "1"}
    assert all("train.py" in stray.command and stray.age_s < 300 for stray in seen.values())
    assert any("port" in " ".join(stray.holds) for stray in seen.values())
    warning = strays.warn_of_strays()
    assert all(f"pid {pid}, rank " in warning for pid in pids)
    assert warning.endswith("Next: `lockstep doctor --clean` ends them")
    assert {stray.pid for stray in strays.end(seen.values())} == pids
    assert found(pids) == {}
    assert psutil.pid_exists(bystander)
    assert psutil.Process(bystander).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("torch", [True, False], ids=["by a shell", "without torch"])
def test_a_process_with_a_ranks_variables_is_no_stray_yet(torch: bool) -> None:
    """Started by hand with a copy of a rank's variables, to debug it; or a daemon of a rank's that is no training."""
    marks = ["env", "RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=copied", "MASTER_PORT=1"]
    code = f"{'import torch' * torch}\nimport time, os; print(os.getpid(), flush=True); time.sleep(300)"
    session = ["setsid"] * (not torch)  # else the shell's own
    shell = ["sh", "-c", '"$@" & wait', "sh", *session, *marks, sys.executable, "-c", code]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            assert found({pid}) == {}
        finally:
            os.kill(pid, signal.SIGKILL)
            parent.wait()


def test_a_pid_that_was_given_anew_is_left_alone(bystander: int) -> None:
    process = procfs.look(bystander)
    assert process is not None
    stray = Stray(bystander, process.start_ticks - 1, 1.0, "train.py", "0", ())
    assert strays.end([stray]) == [stray]  # the one that was seen is gone
    assert procfs.look(bystander) == process
    assert strays.end([replace(stray, start_ticks=process.start_ticks)]) != []
    assert procfs.look(bystander) is None


def test_what_a_living_run_has_started_is_no_stray(tmp_path: Path) -> None:
    """A process in a session of its own, whose parent is gone: only the run's end makes it a stray."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    record = str(tmp_path / "lockstep-abc/0/rank-0.crash.txt")
    rank = context.Process(target=hold_record, args=(record, str(tmp_path / "rank")))
    rank.start()
    wait_for(tmp_path / "rank")
    starter = context.Process(target=leave_holder, args=(record, str(tmp_path / "left")))
    starter.start()
    starter.join()
    left = int(wait_for(tmp_path / "left"))
    try:
        assert found({left, rank.pid or 0}) == {}
        rank.kill()
        rank.join()
        assert found({left, rank.pid or 0}).keys() == {left}
        assert len(strays.end(found({left}).values())) == 1
    finally:
        rank.kill()
        if procfs.look(left) is not None:
            os.kill(left, signal.SIGKILL)
    starter.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_users_is_left_alone(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    starter = context.Process(
        target=leave_holder, args=(str(folder / "lockstep-abc/0/rank-0.crash.txt"), str(folder / "left"), 65534)
    )
    starter.start()
    starter.join()
    left = int(wait_for(folder / "left"))
    try:
        assert found({left}) == {}
        process = procfs.look(left)
        assert process is not None
        seen = Stray(left, process.start_ticks, 1.0, "train.py", "0", ())
        assert strays.end([seen]) == []
        assert procfs.look(left) == process
    finally:
        os.kill(left, signal.SIGKILL)
        shutil.rmtree(folder)
    starter.close()


def test_without_strays_a_launch_waits_for_nothing() -> None:
    began = time.perf_counter()
    strays.find(ask_driver=False)
    assert time.perf_counter() - began < 1.0  # milliseconds, but for a machine that is busy


def test_the_words() -> None:
    stray = Stray(7, 1, 3 * 3600.0, "python train.py", "1", ("port 29500", "300 MiB of memory"))
    assert str(stray) == "pid 7, rank 1, 3 h old, holds port 29500, 300 MiB of memory: python train.py"
    assert "started by a rank" in str(replace(stray, rank=""))


DAEMON = """
import os, sys, time, torch
if os.environ.get("RANK") == "0" and os.fork() == 0:
    os.setsid()
    with open(sys.argv[1] + ".tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".tmp", sys.argv[1])
    time.sleep(300)
time.sleep(300)
"""


def test_what_a_rank_of_ours_has_put_in_a_session_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DAEMON)
    run = Command(tmp_path / "here", "run", "--nproc", "2", str(tmp_path / "train.py"), str(tmp_path / "daemon"))
    run.until((tmp_path / "daemon").exists)
    daemon = int((tmp_path / "daemon").read_text())
    ranks = {child.pid for child in psutil.Process(run.pid).children(recursive=True)} - {daemon}
    try:
        assert found({daemon}) == {}
        run.process.kill()
        run.process.join()
        deadline = time.monotonic() + 10
        while any(procfs.look(pid) for pid in ranks) and time.monotonic() < deadline:
            time.sleep(0.02)
        seen = found({daemon, *ranks})
        assert seen.keys() == {daemon}, "the ranks themselves end with their launcher"
        assert len(strays.end(seen.values())) == 1
    finally:
        if procfs.look(daemon) is not None:
            os.kill(daemon, signal.SIGKILL)
    run.process.close()
