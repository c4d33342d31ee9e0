"""The board: what one process marks, another reads, also after it was killed."""

import gc
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from lockstep.trace.progress import Board, Phase


def test_nothing_is_marked_until_a_rank_takes_its_pen(tmp_path: Path) -> None:
    board = Board(tmp_path, 2, make=True)
    assert [board.read(rank).beats for rank in range(2)] == [0, 0]
    board.marks(1)
    assert [board.read(rank).beats for rank in range(2)] == [0, 1]


def test_marks_of_one_rank_are_read_by_another_mapping(tmp_path: Path) -> None:
    board = Board(tmp_path, 3, make=True)
    marks = Board(tmp_path, 3).marks(2)
    marks.took_batch(5_000)
    with marks.within(Phase.DATA):
        assert board.read(2).phase == Phase.DATA
    with marks.collective("all_reduce", "float32[4]", "/a/b.py:3"):
        inside = board.read(2)
        assert (inside.inside, inside.count, inside.phase) == (1, 1, Phase.COLLECTIVE)
    marks.stepped()
    seen = board.read(2)
    assert (seen.step, seen.batches, seen.data_ns, seen.inside) == (1, 1, 5_000, 0)
    (entry,) = seen.entries
    assert (entry.number, entry.op, entry.about, entry.place, entry.step) == (
        1, "all_reduce", "float32[4]", "/a/b.py:3", 0,
    )  # fmt: skip
    assert board.read(1).beats == 0


def test_after_the_first_step_the_start_is_over(tmp_path: Path) -> None:
    marks = Board(tmp_path, 1, make=True).marks(0)
    assert marks.phase == Phase.START
    marks.stepped()
    with marks.within(Phase.SAVE):
        pass
    assert marks.phase == Phase.SCRIPT


def test_the_newest_are_kept(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, make=True)
    marks = board.marks(0)
    for number in range(100):
        with marks.collective("barrier", "", ""):
            pass
        marks.stepped()
        marks.digest(number, number << 32)
    seen = board.read(0)
    assert [entry.number for entry in seen.entries] == list(range(70, 101))
    assert [number for number, _, _ in seen.steps] == list(range(69, 101))
    assert seen.digests[-1] == (99, 99 << 32)


def test_a_long_place_keeps_its_end_and_odd_text_does_no_harm(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, make=True)
    marks = board.marks(0)
    with marks.collective("all_reduce", "float32[1]", "/" + "ö" * 200 + "/train.py:9"):
        (entry,) = board.read(0).entries
        assert entry.op == "all_reduce"
    with marks.elsewhere("send", "/x/y.py:3"):
        assert board.read(0).now == "send\t/x/y.py:3"
    assert board.read(0).now == ""


def test_what_a_failing_rank_was_in_stays_to_be_read(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, make=True)
    marks = board.marks(0)
    try:
        with marks.collective("barrier", "", "a.py:1"):
            raise RuntimeError
    except RuntimeError:
        pass
    assert board.read(0).inside == 1


def test_the_collective_of_before_may_be_waited_for_once_more(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, make=True)
    marks = board.marks(0)
    with marks.collective("gradients", "", ""):
        pass
    with marks.again():
        assert (board.read(0).inside, board.read(0).count, board.read(0).phase) == (1, 1, Phase.BACKWARD)
    assert board.read(0).inside == 0


def test_the_wish_to_stop(tmp_path: Path) -> None:
    board, other = Board(tmp_path, 1, make=True), Board(tmp_path, 1)
    assert not other.stop_asked
    board.ask_stop()
    assert other.stop_asked


def _write_until_killed(folder: str) -> None:
    marks = Board(Path(folder), 1).marks(0)
    while True:
        with marks.collective("gradients", "", "/a/b.py:3"):
            pass
        marks.stepped()


def test_a_killed_writer_leaves_what_can_be_read(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, make=True)
    process = multiprocessing.get_context("forkserver").Process(target=_write_until_killed, args=(str(tmp_path),))
    process.start()
    deadline = time.monotonic() + 30
    while board.read(0).step < 500 and time.monotonic() < deadline:
        seen = board.read(0)
        assert seen.count - seen.step in (0, 1)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    seen = board.read(0)
    assert seen.step >= 500 and seen.entries[-1].place == "/a/b.py:3"
    process.close()


def test_it_is_memory_and_goes_with_its_maker(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, make=True)
    assert (tmp_path / "board").resolve().name.startswith("memfd:")
    other = Board(tmp_path, 1)
    del board
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        Board(tmp_path, 1)
    assert not other.stop_asked, "who has it open keeps it"
