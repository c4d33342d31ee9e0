import time
from pathlib import Path

import pytest

from lockstep.launch.stacks import Stack, at_work, doing, spot, worker_stacks
from tests.launch.stacks import targets
from tests.launch.stacks.conftest import Start


def both(pid: int, fallback: Path | None = None) -> list[Stack]:
    """Both workers, once the second one is stuck and the first one has nothing to do."""
    deadline = time.monotonic() + 10
    while True:
        found = list(worker_stacks(pid, fallback=fallback).values())
        if [at_work(stack) for stack in found] == [False, True] or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


@pytest.mark.parametrize("armed", [False, True])
def test_the_worker_that_hangs_is_found(
    start: Start, tmp_path: Path, armed: bool, request: pytest.FixtureRequest
) -> None:
    if armed:
        request.getfixturevalue("forbidden")
    file = tmp_path / "stack.txt" if armed else None
    process = start(targets.wait_for_data, armed=file)
    assert process.pid
    idle, stuck = both(process.pid, file)
    assert {idle.source, stuck.source} == {"faulthandler" if armed else "py-spy"}
    assert doing(idle) == "waits for work"
    assert spot(stuck).endswith(" in load_image")
    assert doing(stuck) == "sleeps (time.sleep)"
    assert armed or list(worker_stacks(process.pid)) == [idle.pid, stuck.pid]


def test_other_children_are_no_workers(start: Start) -> None:
    process = start(targets.wait_for_program)
    assert process.pid
    assert list(worker_stacks(process.pid)) == []


def test_a_process_that_is_gone_has_none(start: Start) -> None:
    process = start(targets.end)
    assert process.pid
    process.join(10)
    assert list(worker_stacks(process.pid)) == []
