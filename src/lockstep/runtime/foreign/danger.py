"""How long a pickle is; a trap for the memory is told before it is read."""

import pickletools
from typing import BinaryIO

from lockstep.runtime.foreign.honest import Asks, asks
from lockstep.runtime.foreign.window import DamagedFileError


def is_dangerous(origin: str) -> bool:
    """Whether a name (`os.system`) belongs to a pickle that does something when it is read."""
    return asks(origin) == Asks.RUN


def is_unknown(origin: str) -> bool:
    """Whether a name is a function that nobody here knows: what it does when it is called cannot be told."""
    return asks(origin) == Asks.CALL


def end_of_pickle(file: BinaryIO) -> int:
    """Read over one pickle, doing nothing of what it says; the position behind it.

    Raises:
        DamagedFileError: where it is no whole pickle, or would fill the memory by itself.
    """
    start, count, largest = file.tell(), 0, 0
    try:
        for op, argument, _ in pickletools.genops(file):
            count += 1
            if op.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(argument, int):
                largest = max(largest, argument)
    except (ValueError, EOFError, MemoryError, OverflowError, IndexError, KeyError, UnicodeError) as error:
        raise DamagedFileError(f"its pickle breaks off: {str(error) or type(error).__name__}") from None
    end = file.tell()
    if largest > count + 1024:
        raise DamagedFileError(f"its pickle asks for {largest} places in memory for {count} values: a trap")
    assert end > start
    return end
