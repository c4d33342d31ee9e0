"""Rank 0 speaks, every rank writes its own file with rank and time, and no line of two ranks is mixed."""

import logging
import os
import re
import sys
import warnings
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.runtime.logs import log, rank_logs
from tests.ranks import run_ranks

STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} rank \d (INFO|WARNING|ERROR) ")


def speak(folder: Path, screen: Path, all_ranks: bool) -> None:
    """Say something in every way there is, with the streams of the process in a file."""
    rank = int(os.environ["RANK"])
    file = os.open(screen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    kept = [os.dup(1), os.dup(2)]
    for stream in (1, 2):
        os.dup2(file, stream)
    try:
        with rank_logs(folder, rank, all_ranks):
            log.info("logged by %d", rank)
            logging.getLogger("of.a.library").warning("warned by %d", rank)
            logging.getLogger("of.a.library").debug("a detail")
            for number in range(200):
                print("printed", "by", rank, number)
            print("error by", rank, file=sys.stderr, flush=True)
            os.system(f"echo shell of {rank}")
            warnings.simplefilter("always")
            warnings.warn(f"a warning of {rank}", UserWarning, stacklevel=1)
            print("no newline", rank, end="")
        sys.stdout.write(f"\nafter {rank}\n")  # at once: nothing keeps this line and another rank's apart
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
        for descriptor in (*kept, file):
            os.close(descriptor)


def spoken(tmp_path: Path, all_ranks: bool) -> tuple[str, list[str]]:
    run_ranks(speak, 2, tmp_path / "logs", tmp_path / "screen", all_ranks)
    files = [(tmp_path / "logs" / f"rank-{rank:05d}.log").read_text() for rank in (0, 1)]
    return (tmp_path / "screen").read_text(), files


def test_rank_0_speaks_and_the_others_write_their_files(tmp_path: Path) -> None:
    screen, files = spoken(tmp_path, all_ranks=False)
    for words in ("logged by 0\n", "warned by 0\n", "printed by 0 199\n", "error by 0\n", "shell of 0\n", "after 1\n"):
        assert words in screen
    for words in ("by 1", "of 1", "detail", "[rank"):
        assert words not in screen
    for words in ("logged by 1\n", "warned by 1\n", "printed by 1 199\n", "error by 1\n", "shell of 1\n"):
        assert words in files[1]
    for rank, text in enumerate(files):
        stamped = [line for line in text.splitlines() if STAMP.match(line)]
        assert [line.split(" ", 3)[3] for line in stamped[:2]] == [
            f"{rank} INFO logged by {rank}",
            f"{rank} WARNING warned by {rank}",
        ]
        assert f"a warning of {rank}" in text
        assert f"by {1 - rank}" not in text


def test_with_all_ranks_every_line_has_its_rank(tmp_path: Path) -> None:
    screen, files = spoken(tmp_path, all_ranks=True)
    lines = screen.splitlines()
    for rank in (0, 1):
        printed = [line for line in lines if line.startswith(f"[rank {rank}] printed")]
        assert printed == [f"[rank {rank}] printed by {rank} {number}" for number in range(200)]
        for words in (f"logged by {rank}", f"warned by {rank}", f"error by {rank}", f"no newline {rank}"):
            assert f"[rank {rank}] {words}" in lines
        assert f"rank {rank} INFO logged by {rank}" in files[rank]
        assert f"after {rank}" in lines


def test_the_error_that_ends_the_block_is_in_the_file_and_not_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), rank_logs(tmp_path, 0):
        print(1 / 0)
    with pytest.raises(UserError), rank_logs(tmp_path, 1, all_ranks=True):
        raise UserError("explained in words")
    first, second = ((tmp_path / f"rank-{rank:05d}.log").read_text() for rank in (0, 1))
    assert "ERROR rank 0 failed: division by zero\nTraceback" in first
    assert "print(1 / 0)" in first
    assert "ERROR rank 1 failed: explained in words" in second
    assert "Traceback" not in second
    assert capsys.readouterr() == ("", "")


def test_everything_is_put_back(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers), sys.stdout, sys.stderr, warnings.showwarning
    with rank_logs(tmp_path, 0, all_ranks=True):
        assert sys.stdout is not before[2]
    assert (root.level, list(root.handlers), sys.stdout, sys.stderr, warnings.showwarning) == before


def test_a_second_start_adds_to_the_file(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with rank_logs(tmp_path, 0):
            log.info(text)
    assert [line.split()[-1] for line in (tmp_path / "rank-00000.log").read_text().splitlines()] == ["first", "second"]


def test_a_full_disk_costs_lines_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "rank-00000.log").symlink_to("/dev/full")
    with rank_logs(tmp_path, 0):
        log.info("still on the screen")
    assert capsys.readouterr() == ("still on the screen\n", "")


def to_nobody(folder: Path) -> str:
    """A reader that has gone, as after `| head`."""
    reader, writer = os.pipe()
    os.close(reader)
    kept, errors = os.dup(1), folder / "stderr"
    before = sys.stderr
    os.dup2(writer, 1)
    try:
        with errors.open("w") as sys.stderr, rank_logs(folder, 0):
            log.info("nobody reads this")
    finally:
        sys.stderr = before
        os.dup2(kept, 1)
        os.close(writer)
    return errors.read_text()


def test_a_reader_that_has_gone_costs_no_traceback(tmp_path: Path) -> None:
    assert run_ranks(to_nobody, 1, tmp_path) == [""]
    assert "nobody reads this" in (tmp_path / "rank-00000.log").read_text()
