"""Whose line was it? Finding the user's frame in tracebacks, worker tracebacks and crash stacks."""

import re
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_STDLIB = tuple(
    Path(path).resolve() for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")) if path
)
# Both ways to print a frame: `File "a.py", line 3, in f` (traceback) and `File "a.py", line 3 in f` (faulthandler).
_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+),? in (?P<name>.+)$', re.MULTILINE)
_HEADER = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Worker:
    """What a DataLoader worker raised, taken out of the text that torch wraps it in."""

    type_name: str
    message: str
    where: str


def is_users(filename: str) -> bool:
    """Whether the file is the user's: neither installed, nor Python's own, nor Lockstep's."""
    if filename.startswith("<"):
        return filename in ("<string>", "<stdin>")
    path = Path(filename).resolve()
    if "site-packages" in path.parts or "dist-packages" in path.parts or path.is_relative_to(_PACKAGE):
        return False
    return not any(path.is_relative_to(folder) for folder in _STDLIB)


def where_of(error: BaseException) -> str:
    """The innermost frame of the user's as `file:line in function`, else the innermost that is not ours, else ""."""
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    mine = [frame for frame in others if is_users(frame.filename)] or others or list(frames)
    return spot_of(mine[-1].filename, mine[-1].lineno or 0, mine[-1].name) if mine else ""


def users_traceback(error: BaseException) -> str:
    """The user's frames of a traceback, without the frames in between; "" when there are none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    lines = "".join(traceback.format_list(frames)).rstrip().split("\n")
    return "\n".join(line for line in lines if set(line) - set(" ^~"))


def full_traceback(error: BaseException) -> str:
    """Every frame and every chained error."""
    return "".join(traceback.format_exception(error))


def worker_error(text: str) -> Worker | None:
    """Read the message of an error that torch carried over from a DataLoader worker; None if it is not one."""
    if not text.startswith("Caught ") or "Original " + _HEADER not in text:
        return None
    stack = text[text.rindex(_HEADER) + len(_HEADER) :].strip("\n").split("\n")
    # The frames are indented; the error starts at the first line that is not, and may have many lines.
    start = next((at for at, line in enumerate(stack) if line and not line[0].isspace()), None)
    if start is None:
        return None
    name, _, first = stack[start].partition(": ")
    return Worker(
        name.rpartition(".")[2], "\n".join([first, *stack[start + 1 :]]).strip(), _last_spot("\n".join(stack))
    )


def crash_spot(text: str) -> str:
    """The user's innermost frame in a stack that `faulthandler` wrote (its most recent call comes first)."""
    threads = re.split(r"\n\s*\n", text)
    current = next((part for part in threads if "Current thread" in part), text)
    return _last_spot("\n".join(reversed(current.split("\n"))))


def _last_spot(text: str) -> str:
    frames = list(_FRAME.finditer(text))
    mine = [frame for frame in frames if is_users(frame["file"])] or frames
    return spot_of(mine[-1]["file"], int(mine[-1]["line"]), mine[-1]["name"]) if mine else ""


def spot_of(filename: str, line: int, name: str) -> str:
    """One frame as `file:line in function`; a file below the working folder by its short path."""
    path = Path(filename)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        filename = str(path.relative_to(Path.cwd()))
    return f"{filename}:{line} in {name}"
