"""Signals in loader workers: a scheduler sends SIGTERM to every process of a job, and the rank still needs them."""

import os
import signal
import threading

_HELD = {signal.SIGTERM, signal.SIGUSR1}


def shield(worker: int) -> None:
    """Let only the rank end this worker: the first act of a worker process.

    A worker that a scheduler's or an agent's signal ends would take the rank with it, before it has saved. Without the
    rank it ends by itself, as every worker of torch's does.

    Args:
        worker: its number, unused.
    """
    # Python's handlers do not say who sent a signal, and one that waits for it in C does.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    threading.Thread(target=_wait, args=(os.getppid(),), name="signals", daemon=True).start()


def _wait(rank: int) -> None:
    while True:
        came = signal.sigwaitinfo(_HELD)
        if came.si_signo == signal.SIGTERM and came.si_pid == rank:
            os._exit(0)
