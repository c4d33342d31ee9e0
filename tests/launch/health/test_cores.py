import pytest

from lockstep.launch.health import cores
from lockstep.launch.health.check import Asked


def statuses(asked: Asked, num_cores: int, quota: float | None = None) -> tuple[str, str]:
    one, two = cores.judge(asked, num_cores, num_cores // 2, quota, 0.5)
    return one.status, two.status


@pytest.mark.parametrize(
    ("ranks", "num_cores", "quota", "status"),
    [(4, 8, None, "ok"), (9, 8, None, "warn"), (4, 64, 2.0, "warn"), (2, 64, 4.0, "warn"), (4, 8, 6.0, "ok")],
)
def test_cores_against_ranks(ranks: int, num_cores: int, quota: float | None, status: str) -> None:
    assert statuses(Asked(ranks), num_cores, quota)[0] == status


def test_a_quota_says_how_many_threads() -> None:
    check, _ = cores.judge(Asked(2), 64, 32, 8.0, 0.5)
    assert "64 cores (32 physical), time of 8 of them" in check.seen
    assert check.advice == "threads are counted by cores: set OMP_NUM_THREADS=4"


@pytest.mark.parametrize(
    ("threads", "status"), [("4", "ok"), ("1", "ok"), ("5", "warn"), ("many", "fail"), ("0", "fail")]
)
def test_threads_against_cores(threads: str, status: str) -> None:
    assert statuses(Asked(2, environ={"OMP_NUM_THREADS": threads}), 8)[1] == status


def test_unset_threads_are_explained() -> None:
    _, check = cores.judge(Asked(2), 8, 8, None, 0.0)
    assert check.seen == "OMP_NUM_THREADS is not set: torchrun gives a rank 1 thread, `lockstep train` 4"


def test_this_machine() -> None:
    assert [check.name for check in cores.checks(Asked(1))] == ["cores", "threads"]
