"""Blocks fill a tensor, or one is missing."""

from typing import Any

import pytest
import torch

from lockstep.runtime.foreign.chunks import Chunk, put_together
from lockstep.runtime.foreign.window import DamagedFileError


def chunk(offsets: tuple[int, ...], sizes: tuple[int, ...], value: float = 1.0) -> Chunk:
    return Chunk(offsets, sizes, lambda: torch.full(sizes, value))


def test_blocks_are_put_where_they_belong() -> None:
    entry = put_together("a", (2, 3), "float32", [chunk((0, 0), (2, 1), 1), chunk((0, 1), (2, 2), 2)])
    assert entry.load().tolist() == [[1, 2, 2], [1, 2, 2]]


@pytest.mark.parametrize(
    "chunks",
    [[chunk((0,), (2,))], [chunk((2,), (3,))], [chunk((0, 0), (2, 2))], [chunk((-1,), (4,))], []],
)
def test_what_does_not_fill_it_is_refused(chunks: list[Chunk]) -> None:
    with pytest.raises(DamagedFileError, match="one is missing"):
        put_together("a", (4,), "float32", chunks)
    lying = Chunk((0,), (4,), lambda: torch.ones(3))
    with pytest.raises(DamagedFileError, match="has shape"):
        put_together("a", (4,), "float32", [lying]).load()


@pytest.mark.parametrize("odd", [(True,), (-1,), (0.0,), (2**63,), ("a",), (1,) * 65])
def test_sizes_that_are_none(odd: tuple[Any, ...]) -> None:
    with pytest.raises(DamagedFileError):
        put_together("a", odd, "float32", [Chunk((0,) * len(odd), odd, lambda: torch.ones(1))])
    with pytest.raises(DamagedFileError):
        put_together("a", (1,), "float32", [Chunk(odd, (1,), lambda: torch.ones(1))])
