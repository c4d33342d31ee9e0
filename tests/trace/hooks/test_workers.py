"""What is told of random numbers that are drawn in the workers of a loader."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lockstep.trace.events import Batch
from lockstep.trace.hooks import workers
from tests.trace.hooks.recorded import recorded

# The child has no more than one thread of its own when it is forked; 3.12 warns of forks in general.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Drawn(Dataset[Any]):
    """Each sample is a number that was drawn from one of the three libraries."""

    def __init__(self, lib: str) -> None:
        self.lib = lib

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.lib == "torch":
            return torch.rand(1)
        return torch.tensor(
            [np.random.rand() if self.lib == "numpy" else random.random() if self.lib else float(index)]
        )


def _two_passes(lib: str, seeds: tuple[int, int], persistent: bool) -> None:
    loader = DataLoader(Drawn(lib), 2, num_workers=1, persistent_workers=persistent)
    for seed in seeds:
        torch.manual_seed(seed)
        list(loader)


def _noise(folder: Path, lib: str, seeds: tuple[int, int], persistent: bool = False) -> list[list[dict[str, str]]]:
    events = recorded(folder, "data", _both, lib, seeds, persistent)
    batches = [event for event in events if isinstance(event, Batch)]
    return [[dict(one.noise) for one in batches if one.number == number] for number in (0, 1)]


def _both(lib: str, seeds: tuple[int, int], persistent: bool) -> None:
    workers.install(_Bare())
    _two_passes(lib, seeds, persistent)


class _Bare:
    """As much of a recorder as the hook needs."""

    def patch(self, owner: Any, name: str, make: Any) -> None:
        setattr(owner, name, make(getattr(owner, name)))


@pytest.mark.parametrize("lib", ["torch", "numpy", "random"])
def test_a_seed_that_is_set_again_is_seen_in_the_workers(tmp_path: Path, lib: str) -> None:
    first, second = _noise(tmp_path, lib, (3, 3))
    assert list(first[0]) == [lib]
    assert first[-1] == second[-1]


def test_another_seed_is_another_state(tmp_path: Path) -> None:
    first, second = _noise(tmp_path, "numpy", (3, 4))
    assert first[-1].keys() == second[-1].keys() == {"numpy"}
    assert first[-1] != second[-1]


def test_workers_that_stay_go_on(tmp_path: Path) -> None:
    first, second = _noise(tmp_path, "random", (3, 3), True)
    assert first[-1].keys() == second[-1].keys() == {"random"}
    assert first[-1] != second[-1]


def test_nothing_is_drawn(tmp_path: Path) -> None:
    assert _noise(tmp_path, "", (3, 3)) == [[{}] * 4, [{}] * 4]


def test_only_the_first_batches_of_a_worker_are_looked_at() -> None:
    notes = workers.Notes()
    for number in range(3):
        assert notes.due
        notes.take(dict.fromkeys(("torch", "numpy", "random"), number), dict.fromkeys(("torch", "numpy", "random"), 9))
    assert not notes.due
    assert notes.told() == {"torch": "00000000", "numpy": "00000000", "random": "00000000"}
    notes.clear()
    assert notes.due and notes.told() == {}
