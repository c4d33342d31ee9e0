"""Inside a rank: whether the launcher has asked it to save and end."""

from lockstep.trace.progress import Board

_boards: list[Board] = []


def listen(board: Board) -> None:
    """From now on this rank hears its launcher."""
    _boards[:] = [board]


def stop_asked() -> bool:
    """Whether the launcher got SIGTERM or SIGUSR1 and waits for all ranks to save and end; False without a launcher."""
    return bool(_boards) and _boards[0].stop_asked
