"""Whether a loader's workers draw random numbers while they make samples, and from which state of the generators.

A worker is a forked process that is not recorded. It leaves what it saw in a few words of memory that it shares with
its rank. Workers that are started in another way than by a fork leave nothing.
"""

import multiprocessing
import random
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from lockstep.trace.recorder import Recorder

_LIBS = ("torch", "numpy", "random")
_LOOKS = 3  # so many batches of a worker are looked at


class Notes:
    """What the first worker of a pass saw; made before the workers are, and read by their rank."""

    current: "Notes | None" = None
    """Of the loader whose workers start next; a forked worker keeps what it finds here."""

    def __init__(self) -> None:
        self._words: Any = multiprocessing.RawArray("q", 1 + len(_LIBS))

    def clear(self) -> None:
        """A new pass of workers that stay."""
        self._words[:] = [0] * len(self._words)

    @property
    def due(self) -> bool:
        """Whether the next batch is looked at."""
        return bool(self._words[0] < _LOOKS)

    def take(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """A batch was made: the generators were in these states."""
        self._words[0] += 1
        for number, lib in enumerate(_LIBS, 1):
            if before[lib] != after[lib] and not self._words[number]:
                self._words[number] = before[lib] + 1

    def told(self) -> dict[str, str]:
        """{lib: the state from which it drew first}, of those that it drew from."""
        return {lib: f"{self._words[number] - 1:08x}" for number, lib in enumerate(_LIBS, 1) if self._words[number]}


def install(recorder: Recorder) -> None:
    """Hook what makes batches; only workers are looked at."""
    from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

    for kind in (_MapDatasetFetcher, _IterableDatasetFetcher):
        recorder.patch(kind, "fetch", _fetch)


def _fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    def fetch(*args: Any, **kwargs: Any) -> Any:
        worker, notes = get_worker_info(), Notes.current
        if worker is None or worker.id != 0 or notes is None or not notes.due:
            return original(*args, **kwargs)
        before = _states()
        made = original(*args, **kwargs)
        notes.take(before, _states())
        return made

    return fetch


def _states() -> dict[str, int]:
    state = np.random.get_state(legacy=False)["state"]
    return {
        "torch": zlib.crc32(torch.default_generator.get_state().numpy().tobytes()),
        "numpy": zlib.crc32(state["key"].tobytes() + str(state["pos"]).encode()),
        "random": zlib.crc32(repr(random.getstate()[1]).encode()),
    }
