from lockstep.launch.health import clock
from lockstep.launch.health.check import Asked


def test_a_clock_before_the_installation_is_wrong() -> None:
    assert clock.judge(1.7e9, 1.6e9).status == "ok"
    assert clock.judge(1.6e9, 1.6e9 + 60).status == "ok"
    check = clock.judge(0.0, 1.7e9)
    assert check.status == "warn"
    assert check.seen == "1970-01-01 00:00:00 UTC, before Lockstep was installed (2023-11-14)"


def test_this_machine() -> None:
    assert clock.checks(Asked())[0].status == "ok"
