import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep.launch.earlier import procfs


def test_a_process_is_what_psutil_says_it_is() -> None:
    me = procfs.look(os.getpid())
    assert me is not None
    assert (me.pid, me.parent, me.session, me.uid) == (os.getpid(), os.getppid(), os.getsid(0), os.geteuid())
    assert abs(me.age_s - (time.time() - psutil.Process().create_time())) < 2
    assert procfs.mine(me)
    assert procfs.processes()[me.pid] == me
    assert me.memory_bytes > 2**20


def test_what_it_has_open_and_mapped(tmp_path: Path) -> None:
    me = procfs.look(os.getpid())
    assert me is not None
    with (tmp_path / "open").open("w"):
        assert str(tmp_path / "open") in me.files()
    assert any("/libc" in name and size > 4096 for name, size in me.mapped().items())


def test_variables_command_and_name() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()", "a b", "c"]
    env = {**os.environ, "SEEN": "yes=no"}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = procfs.look(child.pid)
        assert process is not None
        assert process.variables()["SEEN"] == "yes=no"
        assert process.command.endswith("a b c")
        assert not process.has_torch()
        child.kill()
        child.wait()
        assert procfs.look(child.pid) is None
        assert (process.variables(), process.files(), process.mapped()) == ({"": ""}, [], {})


def test_an_ended_child_that_nobody_has_collected_is_gone() -> None:
    child = subprocess.Popen(["true"])
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert procfs.look(child.pid) is None
    child.wait()


def test_what_belongs_to_somebody_else_is_not_mine() -> None:
    me = procfs.look(os.getpid())
    assert me is not None
    other = procfs.Process(me.pid, me.parent, me.session, me.start_ticks, me.uid + 1)
    assert not procfs.mine(other)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run with another user's rights")
def test_a_program_of_another_user_with_this_ones_rights_is_not_mine() -> None:
    code = "import os; os.setresuid(65534, 0, 0); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = procfs.look(child.pid)
        assert process is not None
        assert process.uid == 0
        assert not procfs.mine(process)
        child.kill()
