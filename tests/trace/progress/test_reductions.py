"""A backward is a collective from the moment it comes to what a wrapper returned."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lockstep.trace.progress import Board
from lockstep.trace.progress.reductions import Reductions


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path, 1, make=True)


def make(board: Board) -> Reductions:
    return Reductions(board.marks(0))


def output() -> Tensor:
    return torch.ones(2, requires_grad=True) * 2


def test_a_backward_of_something_else_is_none(board: Board) -> None:
    reductions, returned, other = make(board), output(), output()
    reductions.expect({"loss": [returned]})
    with reductions.backward("a.py:1"):
        other.sum().backward()
    assert board.read(0).count == 0 and reductions.expected
    with reductions.backward("a.py:2"):
        returned.sum().backward()
    reading = board.read(0)
    assert (reading.count, reading.inside, reading.entries[0].place) == (1, 0, "a.py:2")
    assert not reductions.expected


def test_one_backward_of_several_outputs_is_one(board: Board) -> None:
    reductions, one, two = make(board), output(), output()
    reductions.expect((one, two))
    reductions.expect([output()])
    with reductions.backward(""):
        (one.sum() + two.sum()).backward()
    assert board.read(0).count == 1


class Hidden:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_an_output_that_cannot_be_seen_makes_the_next_backward_one(board: Board) -> None:
    reductions, returned = make(board), Hidden(output())
    reductions.expect(returned)
    with reductions.backward(""):
        returned.value.sum().backward()
    assert board.read(0).count == 1 and not reductions.expected


def test_what_fails_inside_stays_to_be_read(board: Board) -> None:
    reductions, returned = make(board), output()
    reductions.expect(returned)
    with pytest.raises(RuntimeError, match="lost"), reductions.backward(""):
        returned.sum().backward()
        raise RuntimeError("lost")
    assert board.read(0).inside == 1
    reductions.expect(output())
    with reductions.backward(""):
        pass
    assert board.read(0).count == 1
