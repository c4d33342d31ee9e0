"""A rank that calls `os._exit` says nothing, and no handler runs: it is noted in the moment of the call."""

import os
import time
from pathlib import Path
from typing import NoReturn

from lockstep.launch import frames, record
from lockstep.launch.record import Failure
from lockstep.trace.place import users_frame


def note_exits(folder: Path, rank: int) -> None:
    """From now on `os._exit` of this process leaves a record, unless there is one, or its work is done.

    Processes that it forks are left alone.
    """
    original, pid = os._exit, os.getpid()

    def noted(status: int) -> NoReturn:
        known = record.is_done(folder, rank) or record.has_failed(folder, rank)
        if os.getpid() == pid and not known:
            record.write_failure(folder, _failure(status, rank), "")
        original(status)

    os._exit = noted


def _failure(status: int, rank: int) -> Failure:
    frame = users_frame(3)
    where = frames.spot_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) if frame else ""
    called = f"called os._exit({status})"
    message = called if status else f"left early: {called} before its work was done"
    return Failure(rank, "exit", message, where, "", "", time.time_ns(), status % 256 or 1)
