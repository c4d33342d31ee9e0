"""A loader worker outlives a signal to the whole job, and not its rank."""

import signal
import subprocess
import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from lockstep.runtime.data.shield import shield

NUMBERS: Any = [torch.tensor(i) for i in range(200)]


def loader() -> DataLoader[Any]:
    return DataLoader(NUMBERS, num_workers=1, worker_init_fn=shield, prefetch_factor=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_from_elsewhere_is_nothing_to_it(number: signal.Signals) -> None:
    batches = iter(loader())
    next(batches)
    (worker,) = batches._workers  # type: ignore[attr-defined]
    subprocess.run(["kill", f"-{number.name.removeprefix('SIG')}", str(worker.pid)], check=True)
    assert [int(batch) for batch in batches] == list(range(1, 200))


def test_the_rank_ends_it() -> None:
    batches = iter(loader())
    next(batches)
    (worker,) = batches._workers  # type: ignore[attr-defined]
    worker.terminate()
    worker.join(10)
    assert worker.exitcode == 0
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(batches)


def test_usual_end_is_quick() -> None:
    batches = iter(loader())
    next(batches)
    start = time.monotonic()
    batches._shutdown_workers()  # type: ignore[attr-defined]
    assert time.monotonic() - start < 4  # torch's patience is 5 s, then it terminates
