"""Seeds that are told, states that ranks can compare, and draws that stay as they are."""

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, random_split

from lockstep.trace.events import RandomState, Seed
from lockstep.trace.hooks.randomness import random_state
from lockstep.trace.recorder import Recorder
from tests.trace.recording import bare, record_one


def _seeds() -> list[Any]:
    torch.manual_seed(1)
    torch.random.manual_seed(seed=2)
    np.random.seed(3)
    np.random.seed(np.uint32(4))
    random.seed(5)
    random.seed(a="words")
    np.random.seed([6, 7])
    own = torch.Generator().manual_seed(8)
    rng = np.random.default_rng(9)
    return [
        torch.rand(2).tolist(),
        np.random.rand(2).tolist(),
        random.random(),
        torch.rand(2, generator=own).tolist(),
        rng.normal(size=2).tolist(),
        rng.spawn(1)[0].random(),
        np.random.default_rng(np.random.PCG64(3)).random(),
        torch.randperm(5, generator=torch.Generator(device="cpu").manual_seed(2)).tolist(),
        list(RandomSampler(range(5), generator=own)),
        [list(part.indices) for part in random_split(range(6), [2, 4], generator=own)],  # type: ignore[arg-type]
    ]


def test_draws_stay_as_they_are_and_seeds_are_told(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _seeds)
    assert [seen.result] == bare(_seeds)
    assert [(one.lib, one.value) for one in seen.of(Seed)] == [
        ("torch", 1),
        ("torch", 2),
        ("numpy", 3),
        ("numpy", 4),
        ("random", 5),
        ("generator", 8),
        ("generator", 2),
    ]
    assert all("test_randomness.py" in one.at for one in seen.of(Seed))


def _generators() -> list[Any]:
    own = torch.Generator()
    given = np.random.default_rng(1)
    loader = DataLoader(range(4), shuffle=True, generator=own, num_workers=1, multiprocessing_context="spawn")  # type: ignore[arg-type,var-annotated]
    return [
        isinstance(torch.default_generator, torch.Generator),
        isinstance(copy.deepcopy(own), torch.Generator),
        isinstance(pickle.loads(pickle.dumps(own)), torch.Generator),
        isinstance(own.clone_state(), torch.Generator),
        isinstance("no", torch.Generator),
        isinstance(given, np.random.Generator),
        np.random.default_rng(given) is given,
        type(own).__name__,
        len(pickle.dumps(loader.generator)) > 0,
    ]


def test_generators_are_what_they_were(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _generators)
    assert [seen.result] == bare(_generators)


def _states() -> list[str]:
    from lockstep.trace import hooks

    made: list[Recorder] = []
    original = hooks.randomness.random_state

    def state(when: str) -> None:
        original(made[0], when)

    made.append(_recorder())
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    state("first")
    state("unchanged")
    torch.rand(1)
    np.random.rand()
    state("drawn")
    np.random.set_state(np.random.RandomState(np.random.MT19937(1)).get_state())
    made[0].step = 8
    state("later")
    return [random.choice("ab")]


def _recorder() -> Recorder:
    import gc

    (recorder,) = (one for one in gc.get_objects() if type(one) is Recorder)
    return recorder


def test_a_state_changes_when_it_is_drawn_from(tmp_path: Path) -> None:
    first, same, drawn, later = record_one(tmp_path, _states).of(RandomState)
    assert (first.torch, first.numpy, first.random) == (same.torch, same.numpy, same.random)
    assert drawn.torch != first.torch and drawn.numpy != first.numpy and drawn.random == first.random
    assert later.torch and not later.numpy and not later.random, "slow to read, so in the first steps only"
    assert random_state.__doc__
