"""The guard around a rank's work: whatever goes wrong becomes a record, and the process leaves in one way."""

import atexit
import logging
import multiprocessing.util
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from lockstep.core.errors import LockstepError, UserError
from lockstep.core.outcome import Exit
from lockstep.launch import frames
from lockstep.launch.record import Failure, Kind, failures_folder, write_done, write_failure
from lockstep.launch.verdict import describe
from lockstep.runtime.world import Place

log = logging.getLogger("lockstep")

RANK_0_FIRST_S = 1.0
"""Under torchrun the other ranks hold an explained error back for so long. If rank 0 has the same one, torchrun ends
them in that time, and the user reads it once."""

# An error is taken for a consequence only when it names a transport and says that the other side is gone.
_TRANSPORT = re.compile(r"gloo|nccl|c10d|\b(tcp|file|hash)?store\b|socket", re.IGNORECASE)
_LOST = re.compile(
    r"connection (was )?(likely )?(closed|reset|aborted|lost|refused)|broken pipe|closed by peer|pair closure"
    r"|timed? ?out|remote (process|side|peer) (has )?(exited|closed|failed)|failed to recv|failed to send"
    r"|communicator was aborted|remote error",
    re.IGNORECASE,
)


def guarded(target: Callable[..., str | None], args: tuple[Any, ...], rank: int) -> Failure | None:
    """Run `target(*args)` and leave a record of how it ended in the folder named by LOCKSTEP_FAILURES, if any.

    Returns: None when it is done, else what went wrong. Raises nothing.
    """
    folder = failures_folder()
    try:
        ended_at = target(*args)
    except BaseException as error:
        # sys.exit(0) is no success either: this rank leaves before its work is done, and the others wait for it.
        failure = failure_of(error, rank)
        whole = "" if failure.explained else frames.full_traceback(error)
        if folder is not None:
            write_failure(folder, failure, whole)
        _log(failure, whole)
        return failure
    if folder is not None:
        write_done(folder, rank, ended_at if isinstance(ended_at, str) else "")
    return None


def run_as_rank(target: Callable[..., None], args: tuple[Any, ...] = ()) -> NoReturn:
    """Run `target(*args)` in this process, say what went wrong without a traceback of ours, and exit.

    For a rank that somebody else started (torchrun) and for a single process. Exit code: 0, or the error's own.

    Raises:
        UserError: where the environment does not say which rank this is.
    """
    place = Place.from_environment()
    rank = place.rank
    failure = guarded(target, args, rank)
    if failure is None:
        leave(Exit.DONE)
    if failure.exit_code == Exit.PREEMPTED and failure.explained:
        # All ranks left together, and nothing failed: it is said once.
        if rank == 0:
            print(failure.message, file=sys.stderr)
        leave(Exit.PREEMPTED)
    if rank != 0 and failure.explained:
        time.sleep(RANK_0_FIRST_S)
    if rank == 0 or failure.kind not in ("consequence", "interrupt"):
        print(describe(failure, place.num_ranks), file=sys.stderr)
    leave(failure.exit_code)


def leave(code: int) -> NoReturn:
    """End this process without C++ destructors: they can abort a run whose work is complete.

    After success all that Python itself does at exit is done first (threads joined, exit handlers run). After a
    failure it is not: a handler that waits for another rank would hide the failure from the launcher.
    """
    if code == 0:
        for module, name in ((threading, "_shutdown"), (multiprocessing.util, "_exit_function")):
            with suppress(Exception):
                getattr(module, name)()
        atexit._run_exitfuncs()
    with suppress(Exception):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def failure_of(error: BaseException, rank: int) -> Failure:
    """Describe an error that ended this rank."""
    kind, message, where, exit_code = _read(error)
    return Failure(
        rank=rank,
        kind=kind,
        message=message,
        where=where or frames.where_of(error),
        phase="; ".join(getattr(error, "__notes__", ())),
        traceback="" if kind in ("user", "run", "interrupt") else frames.users_traceback(error),
        time_ns=time.time_ns(),
        exit_code=exit_code,
    )


def is_consequence(error: BaseException | None) -> bool:
    """Whether the error only says that another rank is gone, here or in what it was raised from."""
    if error is None:
        return False
    text = _words_of(error)
    lost = isinstance(error, RuntimeError) and bool(_TRANSPORT.search(text) and _LOST.search(text))
    return (lost and not isinstance(error, LockstepError)) or is_consequence(error.__cause__)


def _read(error: BaseException) -> tuple[Kind, str, str, int]:
    """Kind, message, where (if better known than from the traceback) and exit code."""
    worker = frames.worker_error(_words_of(error))
    text, where = (worker.message, worker.where) if worker else (_short(_words_of(error)), "")
    name = type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "interrupt", "Interrupted.", "", Exit.INTERRUPTED
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
        said = f"called sys.exit({error.code!r})"
        return "exit", said, "", code if 0 < code < 256 else 1
    if is_consequence(error):
        return "consequence", text if isinstance(error, LockstepError) else f"{name}: {text}", where, Exit.FAILED
    if isinstance(error, LockstepError):
        return "user" if isinstance(error, UserError) else "run", text, where, int(error.exit_code)
    return "exception", f"{name}: {text}" if text else name, where, Exit.FAILED


def _words_of(error: BaseException) -> str:
    """What the error says; one of the user's may fail to."""
    try:
        return str(error)
    except Exception as second:
        return f"(its text cannot be had: {type(second).__name__})"


def _short(text: str) -> str:
    """Without the C++ stack that torch appends to its messages."""
    return text.partition("\nException raised from ")[0].strip()


def _log(failure: Failure, whole: str) -> None:
    """Into the rank's own log. `file_only` asks a handler of the console to stay silent: the launcher speaks."""
    if log.handlers:  # ours: a script's own log is none of our business
        text = whole or failure.message
        log.error("rank %d failed: %s", failure.rank, text, extra={"file_only": True})
