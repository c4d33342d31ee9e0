"""The user's line: the innermost frame on the stack that is neither Python's, nor a package's, nor ours."""

import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_RECIPES = str(Path(_OURS, "recipes")) + os.sep
_FOREIGN = tuple(sysconfig.get_paths()[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))
_known: dict[str, bool] = {}


def is_users(filename: str) -> bool:
    """Whether a code object's file is the user's: a recipe of ours counts, the machine behind it does not."""
    known = _known.get(filename)
    if known is None:
        ours = filename.startswith(_OURS) and not filename.startswith(_RECIPES)
        known = not ours and not filename.startswith((*_FOREIGN, "<")) and "site-packages" not in filename
        _known[filename] = known
    return known


def users_frame(depth: int = 1) -> FrameType | None:
    """The innermost frame of the user's, from the caller outward."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def users_line(depth: int = 1) -> str:
    """`path:line` of the innermost frame of the user's, "" where there is none."""
    frame = users_frame(depth + 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
