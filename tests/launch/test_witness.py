"""Who sent SIGKILL: from files as the kernel writes them, and from a process that is really killed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.launch.record import Failure
from lockstep.launch.witness import Witness

NOW_US = 10**15
LINE = "3,{seq},{at},-;Memory cgroup out of memory: Killed process {pid} (python3) total-vm:9kB, anon-rss:2097152kB\n"


class Machine:
    """Files of a kernel."""

    def __init__(self, folder: Path, groups: str = "0::/job\n") -> None:
        self.folder = folder
        (folder / "proc" / "self").mkdir(parents=True)
        (folder / "proc" / "self" / "cgroup").write_text(groups)
        self.killed(0, 0)

    def killed(self, machine: int, group: int) -> None:
        (self.folder / "proc" / "vmstat").write_text(f"nr_free_pages 5\noom_kill {machine}\n")
        for file in ("cgroups/job/memory.events", "cgroups/memory/job/memory.oom_control"):
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(f"max 3\noom_kill {group}\n")

    def witness(self) -> Witness:
        return Witness(self.folder / "kmsg", self.folder / "proc", self.folder / "cgroups")


@pytest.mark.parametrize("groups", ["0::/job\n", "4:memory:/job\n0::/\n"], ids=["version 2", "version 1"])
def test_a_rise_of_its_own_group_is_the_kernel(tmp_path: Path, groups: str) -> None:
    machine = Machine(tmp_path, groups)
    witness = machine.witness()
    machine.killed(1, 1)
    assert witness.killer(5).startswith("by the kernel's out-of-memory killer (the memory limit")


def test_a_rise_elsewhere_is_only_probable_and_none_clears_the_kernel(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    witness = machine.witness()
    assert witness.killer(5) == "from outside (the kernel has ended no process for lack of memory)"
    machine.killed(1, 0)
    assert witness.killer(5).startswith("probably by the kernel's")
    assert machine.witness().killer(5).startswith("from outside"), "what was before the start does not count"


def test_without_any_file_nothing_is_said(tmp_path: Path) -> None:
    assert Witness(tmp_path / "a", tmp_path / "b", tmp_path / "c").killer(5) == ""


def test_the_kernels_own_line_names_the_process(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "kmsg").write_text(LINE.format(seq=1, at=NOW_US, pid=77))
    witness = machine.witness()
    said = "by the kernel's out-of-memory killer (the memory limit of its control group was reached; it held 2.0 GiB)"
    assert witness.killer(77) == said
    assert witness.killer(7).startswith("from outside")
    (tmp_path / "kmsg").write_text(LINE.format(seq=1, at=5, pid=77))
    assert witness.killer(77).startswith("from outside"), "a line of an earlier process with this number"


def test_a_loaders_worker_is_judged_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "kmsg").write_text(LINE.format(seq=1, at=NOW_US, pid=77))
    text = "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. "
    failure = Failure(1, "exception", text, "a.py:1", "", "x", 0, 1)
    told = machine.witness().of_a_worker(failure)
    assert told.message == (
        "a DataLoader worker (pid 77) was killed by SIGKILL: by the kernel's out-of-memory killer (the memory limit of"
        " its control group was reached; it held 2.0 GiB)"
    )
    assert told.where == told.traceback == ""
    vague = replace(failure, message="RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly")
    assert machine.witness().of_a_worker(vague).message == told.message
    unknown = replace(failure, message="RuntimeError: DataLoader worker (pid(s) 78) exited unexpectedly")
    assert machine.witness().of_a_worker(unknown) is unknown
    other = Failure(1, "exception", "ValueError: no", "", "", "", 0, 1)
    assert machine.witness().of_a_worker(other) is other


def test_on_this_machine_a_kill_by_hand_is_not_the_kernels() -> None:
    witness = Witness()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process.kill()
    process.communicate()
    assert "the kernel's out-of-memory killer (" not in witness.killer(process.pid)
