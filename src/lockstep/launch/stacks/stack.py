"""The stacks of a process's threads, as data."""

from dataclasses import dataclass

from lockstep.launch.frames import is_users


@dataclass(frozen=True)
class Frame:
    """One call. function: its plain name, without class, as tracebacks have it."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Thread:
    """One thread's Python frames, innermost first; without those that a forked process has from its parent's life.

    busy: whether it was on a processor, or ready for one; None where that is not known.
    """

    name: str
    main: bool
    frames: tuple[Frame, ...]
    busy: bool | None = None


@dataclass(frozen=True)
class Stack:
    """What one process does.

    source: who read it, "py-spy" or "faulthandler"; "" where it could not be read, then `why` says the reason and
    there are no threads.
    """

    pid: int
    threads: tuple[Thread, ...]
    source: str
    why: str = ""

    @property
    def main(self) -> tuple[Frame, ...]:
        """The frames of the main thread, innermost first."""
        return next((thread.frames for thread in self.threads if thread.main), ())

    @property
    def busy(self) -> bool | None:
        """Whether the main thread was busy."""
        return next((thread.busy for thread in self.threads if thread.main), None)


def users_frames(stack: Stack) -> tuple[Frame, ...]:
    """The user's frames of the main thread, innermost first."""
    return tuple(frame for frame in stack.main if is_users(frame.file))


def plain_name(function: str) -> str:
    """`Images.__getitem__` is `__getitem__`, as in a traceback."""
    return function.rpartition(".")[2]


def own_life(frames: list[Frame]) -> tuple[Frame, ...]:
    """The frames since the process was forked: further out are the parent's, which wait for nothing."""
    for at, frame in enumerate(frames):
        if frame.function == "_bootstrap" and frame.file.endswith("multiprocessing/process.py"):
            return tuple(frames[:at])
    return tuple(frames)
