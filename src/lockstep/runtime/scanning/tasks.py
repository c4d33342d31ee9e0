"""What is left to read of a split, in blocks that suit its speed."""

from collections import deque
from collections.abc import Sequence

from lockstep.runtime.scanning.read import Read
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.worker import Block

_BLOCK_S = 0.1
"""A block should take so long: long against handing it out, short against the end of a scan."""
_FIRST, _LARGEST = 4, 1024


class Backlog:
    """The samples of a split that are not read yet.

    Args:
        source: the split.
        num_workers: how many share it.
    """

    def __init__(self, source: Source, num_workers: int) -> None:
        self.source, self.num_workers = source, num_workers
        self._next = 0
        self._again: deque[Block] = deque()
        self._per_sample_s: float | None = None
        self._out = 0
        self._holder: int | None = None
        self.ended = source.length == 0

    @property
    def over(self) -> bool:
        """Whether nothing is left to hand out, and nothing is out."""
        return not self._out and not self._again and (self.ended or self._next == self.source.length)

    def take(self, worker: int) -> Block | None:
        """The next block for a worker. None: nothing is left, or a stream is another worker's."""
        if self.source.length is None and self._holder not in (None, worker):
            return None
        block = self._again.popleft() if self._again else self._fresh()
        if block is not None:
            self._out += 1
            self._holder = worker
        return block

    def _fresh(self) -> Block | None:
        left = None if self.source.length is None else self.source.length - self._next
        if self.ended or left == 0:
            return None
        size = _FIRST if self._per_sample_s is None else int(_BLOCK_S / max(self._per_sample_s, 1e-9))
        size = max(1, min(size, _LARGEST))
        if left is not None:
            # The last blocks are small, so that all workers end together.
            size = min(size, max(1, left // (2 * self.num_workers)))
        start, self._next = self._next, self._next + size
        return Block(self.source.split, range(start, start + size))

    def came(self, read: Read) -> None:
        """A block has been read."""
        self._out -= 1
        self.ended = self.ended or read.ended
        if read.done:
            self._per_sample_s = read.seconds / read.done

    def lost(self, block: Block, at: int | None, several: bool, again: bool) -> None:
        """A worker was lost with a block.

        Args:
            block: what it had; nothing of it was told.
            at: the sample that it was at, None where it was at none.
            several: it was at a batch of several samples: each is tried alone.
            again: whether the sample is tried once more, alone.
        """
        self._out -= 1
        if several:
            self._again.append(Block(block.split, block.indices, one_by_one=True))
            return
        rest = [index for index in block.indices if index != at]
        if self.source.length is None and at is not None:
            # What comes after it in a stream cannot be reached.
            self.ended, again = True, False
            rest = [index for index in rest if index < at]
        half = len(rest) // 2
        parts: list[Sequence[int]] = [part for part in (rest[:half], rest[half:]) if part]
        self._again += [Block(block.split, part, block.one_by_one) for part in parts]
        if at is not None and again:
            self._again.append(Block(block.split, [at], one_by_one=True))
