"""Rank 0 shows a bar on a terminal and a line now and then elsewhere; the others show nothing."""

import io
import logging
import sys

import pytest

import lockstep.runtime.display as module
from lockstep.runtime.display import Display

VALUES: dict[str, float | list[float]] = {"loss": 0.51234, "samples_per_s": 812.4, "memory_mib": [1.0]}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test itself: before it, pytest puts its own stream in place."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return stream


def test_a_bar_with_numbers_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    display = Display(40, 10, "auto", True)
    display.step(20, 1, VALUES)
    display.advance(23)
    print("a line above the bar")
    display.close()
    shown = terminal.getvalue()
    for words in ("epoch 2", "23/40", "left", "loss 0.5123, 812 samples/s", "a line above the bar"):
        assert words in shown
    assert sys.stdout is terminal


def test_a_stream_that_does_not_tell_its_length_has_a_bar_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    display = Display(None, 0, "on", True)
    display.step(5, 0, VALUES)
    display.close()
    assert "5/?" in terminal.getvalue()


@pytest.mark.parametrize(("mode", "speaks"), [("off", True), ("auto", False), ("on", False)])
def test_no_bar_where_it_is_off_or_another_rank(monkeypatch: pytest.MonkeyPatch, mode: str, speaks: bool) -> None:
    terminal = on_terminal(monkeypatch)
    display = Display(40, 0, mode, speaks)  # type: ignore[arg-type]
    display.step(20, 1, VALUES)
    display.advance(21)
    display.close()
    assert terminal.getvalue() == ""


def test_plain_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    display = Display(40, 0, "auto", True)
    for step, seconds in ((1, 1.0), (2, 4.5), (3, 0.1), (4, 5.0)):
        now[0] += seconds
        display.step(step, 0, VALUES)
    display.close()
    assert [record.getMessage() for record in caplog.records] == [
        "epoch 1, step 2/40: loss 0.5123, 812 samples/s",
        "epoch 1, step 4/40: loss 0.5123, 812 samples/s",
    ]


def test_the_other_ranks_log_no_lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "PLAIN_EVERY_S", 0.0)
    Display(40, 0, "auto", False).step(1, 0, VALUES)
    assert not caplog.records
