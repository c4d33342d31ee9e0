"""The bar, and the lines where there is no terminal."""

import sys

import pytest

from lockstep.runtime.scanning import progress
from lockstep.runtime.scanning.progress import Bar


def test_lines_now_and_then_on_stderr(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Bar(100)
    bar.done = 20
    bar.show(5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    bar.found = 2
    bar.show(5)
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith("scan: 25/100 samples, 2 found, ")
    assert err.splitlines()[0].endswith(" s left")


def test_a_stream_has_no_total(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    bar = Bar(None)
    bar.show(7)
    line = capsys.readouterr().err
    assert line.startswith("scan: 7 samples, 0 found")
    assert "left" not in line


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = Bar(100)
    bar.done = 100
    bar.close()
    assert "100/100 samples, 0 found" in capsys.readouterr().err
