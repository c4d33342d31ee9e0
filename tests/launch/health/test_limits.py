import pytest

from lockstep.launch.health import limits
from lockstep.launch.health.check import Asked


@pytest.mark.parametrize(
    ("soft", "status"), [(65536, "ok"), (-1, "ok"), (4096, "ok"), (1024, "warn"), (255, "fail"), (0, "fail")]
)
def test_open_files(soft: int, status: str) -> None:
    assert limits.files(soft, 4096).status == status


def test_the_hard_limit_is_told() -> None:
    assert "(at most 4096 without root)" in limits.files(1024, 4096).advice


def test_processes_of_a_container() -> None:
    assert limits.processes(Asked(4), 4096, 100).status == "ok"
    assert limits.processes(Asked(4), 300, 100).status == "warn"


def test_locked_memory() -> None:
    assert limits.locked(65536).status == "warn"
    assert limits.locked(-1).status == "ok"


def test_this_machine() -> None:
    assert limits.checks(Asked())[0].name == "open files"
