"""Where no process may read another: the process writes its stacks itself, from a signal handler in C.

It needs no GIL and no thread of its own, only that the process is not stopped. The signal is a real-time one near the
top. SIGUSR1 and SIGUSR2 belong to schedulers and scripts, SIGQUIT and SIGABRT end what does not catch them, the C
library keeps the lowest real-time signals for itself, and service managers count upwards from SIGRTMIN.
"""

import ctypes
import faulthandler
import os
import re
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import psutil

from lockstep.launch import procs
from lockstep.launch.stacks.stack import Frame, Stack, Thread, own_life, plain_name

SIGNAL = signal.SIGRTMAX - 2
_PR_SET_PTRACER = 0x59616D61
_POLL_S = 0.01
_QUIET_S = 0.06

_HEADER = re.compile(
    r"^(?:Current thread|Thread) 0x(?P<ident>[0-9a-f]+)(?: \[(?P<name>.*?)\])? \(most recent call first\):"
)
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+|\?\?\?) in (?P<name>.+)$')
_MAIN = "main thread 0x"

_armed: list[TextIO] = []
"""Kept open: the handler knows its file by number only."""


def arm(file: Path) -> None:
    """Let this process, and those that it will fork, write their stacks into `file` when `SIGNAL` comes.

    Also allow the launcher and what it starts to read their memory, where the system asks for that (Yama).

    Raises:
        OSError: the file cannot be written.
    """
    reader = os.getppid()
    opened = file.open("a", encoding="utf-8")
    opened.write(f"{_MAIN}{threading.main_thread().ident or 0:x}\n")
    opened.flush()
    faulthandler.register(SIGNAL, opened, all_threads=True, chain=False)
    _armed.append(opened)
    _allow(reader)
    os.register_at_fork(after_in_child=lambda: _allow(reader))


def read(pid: int, file: Path, deadline: float, why: str) -> Stack:
    """Ask an armed process for its stacks.

    Args:
        pid: the process.
        file: what it has given to `arm`.
        deadline: in the time of `time.monotonic`, seconds.
        why: the reason why no other way was left, told if this one fails too.
    """

    def failed(reason: str) -> Stack:
        return Stack(pid, (), "", f"{why}; {reason}" if why else reason)

    try:
        if psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
            return failed("it is stopped, so it cannot write its stack itself")
        if not procs.handles(pid, SIGNAL):
            return failed("it has no handler that writes its stack")
        busy = psutil.Process(pid).status() == psutil.STATUS_RUNNING
        start = file.stat().st_size
        os.kill(pid, SIGNAL)
        text = _await(file, start, deadline)
        main = _main_of(file)
    except (OSError, psutil.Error) as error:
        return failed(f"its own handler could not be asked: {error}")
    threads = tuple(replace(thread, busy=busy) if thread.main else thread for thread in parse(text, main))
    return Stack(pid, threads, "faulthandler") if threads else failed("its own handler wrote nothing in time")


def parse(text: str, main: str) -> tuple[Thread, ...]:
    """The threads in what faulthandler wrote, the main one first.

    Args:
        text: one dump.
        main: identity of the main thread, hexadecimal without leading zeros.
    """
    found: list[tuple[str, str, list[Frame]]] = []
    for line in text.splitlines():
        if header := _HEADER.match(line):
            found.append((header["ident"].lstrip("0"), header["name"] or "", []))
        elif (frame := _FRAME.match(line)) and found:
            number = int(frame["line"]) if frame["line"].isdigit() else 0
            found[-1][2].append(Frame(frame["file"], number, plain_name(frame["name"])))
    threads = [Thread(name, ident == main, own_life(frames)) for ident, name, frames in found]
    return tuple(sorted(threads, key=lambda thread: not thread.main))


def _await(file: Path, start: int, deadline: float) -> str:
    """What is written behind `start` until nothing more comes."""
    size, since = start, time.monotonic()
    while (now := time.monotonic()) < deadline:
        if (grown := file.stat().st_size) != size:
            size, since = grown, now
        elif size > start and now - since > _QUIET_S:
            break
        time.sleep(_POLL_S)
    with file.open("rb") as stream:
        stream.seek(start)
        return stream.read().decode(errors="replace")


def _main_of(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as stream:
        return stream.readline().strip().removeprefix(_MAIN)


def _allow(reader: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(reader), 0, 0, 0)
