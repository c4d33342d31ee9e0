"""The launcher's wish reaches a rank through the board."""

from pathlib import Path

import pytest

from lockstep.launch import asked
from lockstep.trace.progress import Board


def test_a_rank_hears_its_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "_boards", [])
    assert not asked.stop_asked()
    launchers = Board(tmp_path, 2, make=True)
    asked.listen(Board(tmp_path, 2))
    assert not asked.stop_asked()
    launchers.ask_stop()
    assert asked.stop_asked()
