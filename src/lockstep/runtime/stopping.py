"""Being asked to stop: signals that are noted, and an answer that all ranks have at the same moment."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.runtime.world import World

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""What schedulers send before they take a machine away."""


class GivenUp(Exception):  # noqa: N818  # nothing went wrong
    """Work that can be done again was left, since all ranks stop."""


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """While it is entered, SIGTERM and SIGUSR1 do not end this process; what it gives says whether one has come.

    Pass it to `fit`. Outside the main thread no signal is noted. Handlers that were there before are put back.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    # None stands for a handler that was not installed from Python: it could not be put back.
    found = {number: signal.getsignal(number) for number in SIGNALS}
    main = threading.current_thread() is threading.main_thread()
    before = {number: handler for number, handler in found.items() if main and handler is not None}
    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Agreement:
    """One question asked again and again, answered for all ranks alike, while no rank waits for a slower one at once.

    An answer comes LAG questions late. A rank runs ahead of the slowest by so many, and no further.

    Args:
        world: the ranks; all ask equally often, and `close` together.
        asked: whether this rank was asked to stop.
    """

    LAG = 2

    def __init__(self, world: World, asked: Callable[[], bool]) -> None:
        self.world, self.asked = world, asked
        self._coming: deque[tuple[dist.Work, Tensor]] = deque()

    def stop(self) -> bool:
        """Whether any rank was asked to stop when this was called LAG calls ago."""
        flag = torch.tensor([int(self.asked())], dtype=torch.int32)
        self._coming.append((self.world.start_sum(flag), flag))
        return len(self._coming) > self.LAG and self._answer()

    def close(self) -> None:
        """Wait for the answers that are still on their way."""
        while self._coming:
            self._answer()

    def _answer(self) -> bool:
        work, flag = self._coming.popleft()
        work.wait()
        return int(flag) > 0
