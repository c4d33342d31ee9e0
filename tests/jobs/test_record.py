from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.jobs.record import FOLDER, JobRecord, find, keep, read_all

FIRST = JobRecord("17", "slurm", "points", "runs/a", "runs/a/points-17.txt", "2026-01-01T10:00:00+00:00")
LAST = JobRecord("my-run", "kubernetes", "my-run", "/data/runs/a", "", "2026-01-02T10:00:00+00:00", "lab")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_jobs_are_found_again() -> None:
    keep(LAST)
    keep(FIRST)
    assert read_all() == [FIRST, LAST]
    assert find("17") == FIRST
    assert find() == LAST


def test_the_same_id_again_is_another_job() -> None:
    keep(FIRST)
    again = replace(FIRST, run_dir="runs/b")
    keep(again)
    assert read_all() == [again]


def test_a_job_that_nobody_submitted_here() -> None:
    with pytest.raises(UserError, match="no job was submitted from here"):
        find()
    keep(FIRST)
    with pytest.raises(UserError, match="known: 17"):
        find("18")


def test_what_is_no_note_is_passed_over() -> None:
    keep(FIRST)
    (FOLDER / "a.json").write_text("{")
    (FOLDER / "b.json").write_text('{"id": "1"}')
    assert read_all() == [FIRST]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / FOLDER.parts[0]).write_text("a file is in the way")
    with pytest.raises(UserError, match="job 17 was submitted, but"):
        keep(FIRST)
