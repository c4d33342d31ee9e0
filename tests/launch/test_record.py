import dataclasses
from pathlib import Path

import pytest

from lockstep.launch import record
from lockstep.launch.record import Failure

ONE = Failure(1, "exception", "ValueError: Übung \ud800", "a.py:3 in f", "step 3", "  File", 12345678901234567, 1)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for rank in (1, 0):
        record.write_failure(tmp_path, dataclasses.replace(ONE, rank=rank), "all\nof it")
    assert record.read_failures(tmp_path) == [dataclasses.replace(ONE, rank=0), ONE]
    assert record.traceback_file(tmp_path, 1).read_text() == "all\nof it"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_half_a_record_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text('{"rank": 0, "ki')
    (tmp_path / "rank-2.json").write_text('{"rank": 2}')
    record.write_failure(tmp_path, ONE, "")
    assert record.read_failures(tmp_path) == [ONE]


def test_a_folder_that_is_gone_is_no_second_failure(tmp_path: Path) -> None:
    record.write_failure(tmp_path / "gone", ONE, "text")
    record.write_done(tmp_path / "gone", 0)
    assert record.read_failures(tmp_path / "gone") == []


def test_done(tmp_path: Path) -> None:
    assert not record.is_done(tmp_path, 3)
    record.write_done(tmp_path, 3)
    assert record.is_done(tmp_path, 3)


def test_the_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(record.FAILURES_ENV, raising=False)
    assert record.failures_folder() is None
    monkeypatch.setenv(record.FAILURES_ENV, "runs/x")
    assert record.failures_folder() == Path("runs/x")


def test_a_failure_is_explained_only_by_us() -> None:
    assert dataclasses.replace(ONE, kind="user").explained
    assert not ONE.explained
