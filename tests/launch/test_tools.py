import time

from lockstep.launch.tools import output


def test_what_it_prints() -> None:
    assert output("echo", "two words") == "two words\n"


def test_absent_failed_or_hanging_is_no_answer() -> None:
    assert output("no-such-program-here") is None
    assert output("false") is None
    began = time.monotonic()
    assert output("sleep", "60", timeout_s=0.2) is None
    assert time.monotonic() - began < 30
