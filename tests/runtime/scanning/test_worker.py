"""One worker process: what it shows, how it ends."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.read import Read
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.worker import NOTHING, ONE, SEVERAL, Block, Board, Pair, Verdict, Worker
from tests.bad_samples import Planted


def test_a_board_says_what_a_worker_is_at() -> None:
    board = Board(2)
    board.assign(1)
    state, _, since, begun = board.rows[1]
    assert (state, begun) == (NOTHING, 0)
    assert 0 <= time.monotonic() - since < 60
    board.begin(1, 4)
    board.begin(1, 4)  # read, then made into a batch: one sample
    board.begin(1, 5)
    assert board.rows[1][[0, 1, 3]].tolist() == [ONE, 5, 2]
    board.begin(1, None)
    assert board.rows[1][0] == SEVERAL
    assert board.rows[0].tolist() == [0, 0, 0, 0]


@pytest.fixture
def worker() -> Iterator[tuple[Worker, Board]]:
    board = Board(1)
    one = Worker(0, [Source("train", Planted(20, {5: "exit", 6: "shape", 7: "hang"}), 20)], Batching(), 0, board, [])
    yield one, board
    if not one.pipe.closed:
        one.end()


def test_it_reads_and_compares(worker: tuple[Worker, Board]) -> None:
    one, board = worker
    one.give(Block("train", range(4)), board)
    read = one.pipe.recv()
    assert isinstance(read, Read)
    assert read.done == 4
    one.give(Pair("train", 0, 1), board)
    assert one.pipe.recv() == Verdict(None)
    one.give(Pair("train", 0, 6), board)
    assert "equal size" in one.pipe.recv().reason
    one.give(Pair("train", 0, 100), board)
    assert "a second read raised IndexError" in one.pipe.recv().reason


def test_its_death_and_where_it_was(worker: tuple[Worker, Board]) -> None:
    one, board = worker
    one.give(Block("train", range(20)), board)
    with pytest.raises(EOFError):
        one.pipe.recv()
    assert board.rows[0][[0, 1]].tolist() == [ONE, 5]
    one.process.join()
    assert one.end() == 7


def test_it_ignores_ctrl_c_and_is_ended_at_once(worker: tuple[Worker, Board]) -> None:
    one, board = worker
    one.give(Block("train", [7]), board)
    deadline = time.monotonic() + 30
    while board.rows[0][0] != ONE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert one.process.pid is not None
    os.kill(one.process.pid, signal.SIGINT)
    time.sleep(0.1)
    assert psutil.Process(one.process.pid).status() != psutil.STATUS_ZOMBIE
    assert one.end() == -signal.SIGKILL


def test_one_whose_pipe_is_closed_by_a_data_set_ends_in_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    class Closing(Planted):
        def __getitem__(self, index: int) -> object:
            for one in Path("/proc/self/fd").iterdir():
                if one.is_symlink() and str(one.readlink()).startswith("socket:"):
                    os.close(int(one.name))
            return super().__getitem__(index)

    board = Board(1)
    one = Worker(0, [Source("train", Closing(2, {}), 2)], Batching(), 0, board, [])
    one.give(Block("train", range(2)), board)
    with pytest.raises(EOFError):
        one.pipe.recv()
    one.gone = True
    assert one.end() == 1
    said = capfd.readouterr().err
    assert said.startswith("scan: a process that reads ends: OSError")
    assert "Traceback" not in said
