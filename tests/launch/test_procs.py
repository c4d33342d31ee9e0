"""Nothing outlives the launcher, whatever ends it."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from lockstep.launch import procs
from tests.launch.conftest import Launch, still_alive


def test_a_killed_launcher_takes_everything_with_it(launch: Launch) -> None:
    run = launch("work_with_children")
    ranks = run.until_ready()
    family = run.descendants()
    assert len(family) >= 2 + 2 * 3
    ranks[1].suspend()
    os.kill(run.pid, signal.SIGKILL)
    assert still_alive(family, 5) == []
    assert run.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_a_launcher_killed_while_spawned_ranks_import(launch: Launch) -> None:
    run = launch("work_for_ever", start_method="spawn")
    family: list[psutil.Process] = []
    while len(family) < 3:  # two ranks and Python's resource tracker
        time.sleep(0.01)
        family = run.descendants()
    os.kill(run.pid, signal.SIGKILL)
    assert still_alive(family, 5) == []
    assert run.wait() == -signal.SIGKILL


def test_a_tree_is_killed_with_its_strays() -> None:
    code = "import subprocess, time; subprocess.Popen(['sleep', '1000'], start_new_session=True); time.sleep(1000)"
    leader = subprocess.Popen([sys.executable, "-c", code], process_group=0)
    try:
        while not (family := psutil.Process(leader.pid).children()):
            time.sleep(0.01)
        procs.kill_trees([leader.pid])
        assert leader.wait(5) == -signal.SIGKILL
        assert still_alive(family, 5) == []
    finally:
        leader.kill()


def test_orphans_are_adopted_only_while_asked() -> None:
    assert procs.adopt_orphans(True) is False
    assert procs.adopt_orphans(False) is True


def test_groups_that_are_gone_are_no_error() -> None:
    gone = subprocess.Popen(["true"], process_group=0)
    gone.wait(5)
    procs.kill_trees([gone.pid])
    procs.await_groups([gone.pid], 1)


def test_orphans_of_a_group_are_collected_but_not_its_leader() -> None:
    before = procs.adopt_orphans(True)
    try:
        leader = subprocess.Popen(["sh", "-c", "(sleep 0.1 &) ; exec sleep 1000"], process_group=0)
        orphan = None
        while orphan is None:
            others = [one for one in psutil.Process().children() if one.pid != leader.pid]
            orphan = next((one for one in others if os.getpgid(one.pid) == leader.pid), None)
        while orphan.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        procs.collect_orphans([leader.pid])
        assert not orphan.is_running()
        leader.kill()
        while psutil.Process(leader.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        procs.collect_orphans([leader.pid])
        assert leader.wait(5) == -signal.SIGKILL
    finally:
        procs.adopt_orphans(before)
