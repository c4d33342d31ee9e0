"""The limits: reports come early, ends come late."""

from lockstep.launch.watchdog import Limits


def test_a_report_comes_within_three_step_times_and_five_seconds() -> None:
    limits = Limits()
    assert limits.step_times <= 3 and limits.extra_s < 5


def test_what_may_take_long_is_given_longer_and_the_end_comes_last() -> None:
    limits = Limits()
    reports = (limits.start_s, limits.evaluate_s, limits.save_s, limits.compile_s)
    assert min(reports) >= 60
    assert limits.deadline_s >= max(reports)
    assert not limits.from_start
