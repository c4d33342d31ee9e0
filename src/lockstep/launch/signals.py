"""Signals to the launcher are noted and acted upon in its loop: an exception out of nowhere could leave ranks alive."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

TORCH_SIGNALS_ENV = "TORCHELASTIC_SIGNALS_TO_HANDLE"
WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
ASKING = (signal.SIGTERM, signal.SIGUSR1)
"""What schedulers send before they end a job: a wish to save first."""
ONE_WISH_S = 1.0
"""So soon after the first such signal, another one is the same wish: Slurm sends SIGTERM to the step and to the job."""


class SignalWatch:
    """While it is entered, signals that would end or stop the launcher are noted instead.

    ended_by: the first of SIGINT, SIGTERM, SIGHUP, or None. stop_asked: whether Ctrl-Z has asked for a pause.
    asked: with `asks`, the first of SIGTERM and SIGUSR1, which then only asks for an end; a second one ends, but for
    one that comes within ONE_WISH_S.
    A signal that is ignored on entry stays ignored (`nohup`). Outside the main thread nothing is changed.
    """

    def __init__(self, asks: bool = False) -> None:
        self.ended_by: signal.Signals | None = None
        self.asked: signal.Signals | None = None
        self._asked_at = 0.0
        self._asks = asks
        self._watched = (*WATCHED, signal.SIGUSR1) if asks else WATCHED
        self.stop_asked = False
        self._main = threading.current_thread() is threading.main_thread()
        found = {number: signal.getsignal(number) for number in (*self._watched, signal.SIGQUIT)}
        # None is a handler that was not installed from Python: it can neither be called nor put back.
        self._before = {number: handler for number, handler in found.items() if handler is not None}

    def __enter__(self) -> "SignalWatch":
        self._install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold signals back, also in children that start meanwhile, and keep torch's agent from handling them.

        Its handlers raise. It is asked to install none; older ones do not listen, so ours are put back at the end.
        """
        wish = os.environ.get(TORCH_SIGNALS_ENV)
        os.environ[TORCH_SIGNALS_ENV] = ""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        try:
            yield
        finally:
            self._install()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            del os.environ[TORCH_SIGNALS_ENV]
            if wish is not None:
                os.environ[TORCH_SIGNALS_ENV] = wish

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Note a signal: the handler."""
        if number == signal.SIGTSTP:
            self.stop_asked = True
        elif self._asks and number in ASKING and (self.asked is None or self._same_wish()):
            if self.asked is None:
                self.asked, self._asked_at = signal.Signals(number), time.monotonic()
        elif self.ended_by is None:
            self.ended_by = signal.Signals(number)

    def _same_wish(self) -> bool:
        return time.monotonic() - self._asked_at < ONE_WISH_S

    def _install(self) -> None:
        if not self._main:
            return
        for number, before in self._before.items():
            ours = number in self._watched and before is not signal.SIG_IGN
            signal.signal(number, self.note if ours else before)
