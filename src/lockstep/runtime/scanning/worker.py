"""One worker process, and what it shows of itself while it works."""

import ctypes
import mmap
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

import numpy as np
import torch
from numpy.typing import NDArray

from lockstep.core.words import printable
from lockstep.runtime.data.named import error_text
from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.read import Read
from lockstep.runtime.scanning.reading import NotLabelsError, Reader, Source
from lockstep.runtime.scanning.telling import told
from lockstep.runtime.scanning.together import why_not_together

_PR_SET_PDEATHSIG = 1
_LAST_MOMENT_S = 1.0
_CONTEXT = multiprocessing.get_context("fork")
NOTHING, ONE, SEVERAL = 0, 1, 2
"""What a worker is at: nothing, one sample, a batch of several."""


class Board:
    """What each worker is at, in memory that all see: a hung worker cannot tell, and a dead one neither.

    Args:
        num_workers: rows of it.
    """

    def __init__(self, num_workers: int) -> None:
        # rows: (workers, 4): what it is at, the sample's index, since when (monotonic seconds), samples begun
        size = num_workers * 4
        self.rows: NDArray[np.float64] = np.frombuffer(mmap.mmap(-1, size * 8), np.float64, size).reshape(-1, 4)

    def begin(self, worker: int, index: int | None) -> None:
        """A worker begins with a sample, or with a batch of several."""
        row = self.rows[worker]
        row[2] = time.monotonic()
        if index is None:
            row[0] = SEVERAL
        else:
            row[3] += index != row[1] or row[0] == NOTHING
            row[1] = index
            row[0] = ONE

    def assign(self, worker: int) -> None:
        """A worker gets a task: its clock runs from here."""
        self.rows[worker] = (NOTHING, -1, time.monotonic(), 0)


@dataclass(frozen=True)
class Block:
    """A task: read these samples."""

    split: str
    indices: Sequence[int]
    one_by_one: bool = False


@dataclass(frozen=True)
class Pair:
    """A task: can these two samples be in one batch?"""

    split: str
    usual: int
    other: int


@dataclass(frozen=True)
class Verdict:
    """The answer to a `Pair`: why they cannot, None if they can."""

    reason: str | None


@dataclass(frozen=True)
class Refused:
    """No answer to a task: the recipe itself is wrong."""

    message: str


Task = Block | Pair
Answer = Read | Verdict | Refused


class Worker:
    """A worker process, seen from outside.

    Args:
        number: its row of the board.
        sources: the splits.
        recipe, seed: see `Reader`.
        board: where it shows what it is at.
        others: connections to other workers, which a fork would keep open.

    Attributes:
        task: what it has to do, None while it is idle.
        gone: its pipe has ended, and so has the process.
        known: kept for whoever takes its answers, by split; a worker that replaces it begins anew.
    """

    def __init__(
        self,
        number: int,
        sources: Sequence[Source],
        recipe: Batching,
        seed: int,
        board: Board,
        others: Sequence[Connection],
    ) -> None:
        self.number = number
        self.task: Task | None = None
        self.gone = False
        self.known: dict[str, list[int]] = {}
        self.pipe, theirs = _CONTEXT.Pipe()
        self.process: ForkProcess = _CONTEXT.Process(
            target=_work,
            args=(number, sources, recipe, seed, board, theirs, [*others, self.pipe], os.getpid()),
            daemon=True,
        )
        board.assign(number)
        self.process.start()
        theirs.close()

    def give(self, task: Task, board: Board) -> None:
        """Give it a task. One that has died meanwhile is found out as one that died of the task."""
        self.task = task
        board.assign(self.number)
        with suppress(OSError):
            self.pipe.send(task)

    def end(self) -> int:
        """End it at once. Returns: its exit code, negative for a signal."""
        if self.gone:  # its pipe ends a moment before it does: the exit code is to be its own
            self.process.join(_LAST_MOMENT_S)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        code = self.process.exitcode
        self.pipe.close()
        self.process.close()
        assert code is not None
        return code


def _work(
    number: int,
    sources: Sequence[Source],
    recipe: Batching,
    seed: int,
    board: Board,
    pipe: Connection,
    others: Sequence[Connection],
    parent: int,
) -> None:
    """The life of a worker; what foreign code has broken in it is told in a line, not in a traceback of ours."""
    try:
        _serve(number, sources, recipe, seed, board, pipe, others, parent)
    except BaseException as error:
        with suppress(Exception):
            print(printable(f"scan: a process that reads ends: {told(error)}"), file=sys.stderr, flush=True)
        os._exit(1)


def _serve(
    number: int,
    sources: Sequence[Source],
    recipe: Batching,
    seed: int,
    board: Board,
    pipe: Connection,
    others: Sequence[Connection],
    parent: int,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C goes to all; the parent ends us
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    for other in others:
        other.close()
    # What a data set prints is not the report. A closed stderr's number may be that of another file by now.
    os.dup2(2 if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY), 1)
    torch.set_num_threads(1)
    readers = {
        source.split: Reader(source, recipe, seed, lambda index: board.begin(number, index)) for source in sources
    }
    while True:
        try:
            task: Task | None = pipe.recv()
        except (EOFError, OSError):
            return
        if task is None:
            return
        answer: Answer
        if isinstance(task, Block):
            answer = _read(readers[task.split], task)
        else:
            answer = _compare(readers[task.split], recipe, task)
        pipe.send(answer)


def _read(reader: Reader, block: Block) -> Read | Refused:
    try:
        return reader.read(block.indices, block.one_by_one)
    except NotLabelsError as error:
        return Refused(str(error))


def _compare(reader: Reader, recipe: Batching, pair: Pair) -> Verdict:
    reader.beat(pair.other)
    try:
        usual, other = reader.sample(pair.usual), reader.sample(pair.other)
    except BaseException as error:  # whatever it is, it is the data set's
        return Verdict(f"a second read raised {type(error).__name__}: {error_text(error)}")
    return Verdict(why_not_together(recipe, usual, other))
