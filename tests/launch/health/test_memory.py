from pathlib import Path

from lockstep.launch.health import memory
from lockstep.launch.health.check import Asked

GIB = 2**30


def test_memory_against_ranks() -> None:
    assert memory.judge(Asked(4), 64 * GIB, 32 * GIB, None).status == "ok"
    assert memory.judge(Asked(4), 64 * GIB, 3 * GIB, None).status == "warn"


def test_the_limit_of_a_container_counts() -> None:
    check = memory.judge(Asked(4), 64 * GIB, 32 * GIB, (4 * GIB, 2 * GIB))
    assert check.status == "warn"
    assert "this container may use 4.0 GiB and uses 2.0 GiB" in check.seen
    assert memory.judge(Asked(4), 64 * GIB, 32 * GIB, (999 * GIB, GIB)).status == "ok"


def test_dockers_64_mib_are_too_few() -> None:
    check = memory.judge_shared("/dev/shm", 64 * 2**20, 64 * 2**20, True)
    assert check.status == "warn"
    assert "--shm-size" in check.advice


def test_shared_memory_that_is_full_or_closed() -> None:
    assert memory.judge_shared("/dev/shm", 8 * GIB, 7 * GIB, True).status == "ok"
    assert "--clean" in memory.judge_shared("/dev/shm", 8 * GIB, 2**20, True).advice
    assert memory.judge_shared("/dev/shm", 8 * GIB, 7 * GIB, False).status == "fail"


def test_this_machine(tmp_path: Path) -> None:
    assert memory.shared(tmp_path / "nowhere").status == "fail"
    assert [check.name for check in memory.checks(Asked())] == ["memory", "shared memory"]
