"""Setting all generators, and finding them."""

import copy
import gc
import pickle
import random
from typing import Any

import numpy as np
import torch

from lockstep.trace import seeds
from tests.ranks import run_ranks


def _draws(own: Any, legacy: Any) -> list[float]:
    return [
        torch.rand(1).item(),
        float(np.random.rand()),
        random.random(),
        torch.rand(1, generator=own).item(),
        float(legacy.random()),
    ]


def _seeded() -> tuple[list[float], ...]:
    own, rng = seeds.Generator(), seeds.NumpyGenerator(np.random.PCG64(1))
    seeds.track(rng)
    drawn = []
    for key in (("sample", 3), ("sample", 3), ("sample", 4)):
        seeds.seed_all(*key)
        drawn.append(_draws(own, rng))
    return tuple(drawn)


def test_equal_keys_give_equal_draws_of_every_generator() -> None:
    (first, again, other), second_rank = run_ranks(_seeded, 2)
    assert first == again == second_rank[0], "in another process too"
    assert all(one != two for one, two in zip(first, other, strict=True))
    assert len(set(first)) == 5, "and each generator draws its own"


def _hooked() -> list[float]:
    original, seen = np.random.seed, []
    np.random.seed = lambda *args: seen.append(args) or original(*args)  # type: ignore[assignment,func-returns-value]
    seeds.seed_all(1)
    np.random.seed = original
    return seen


def test_it_does_not_go_through_what_the_recorder_hooks() -> None:
    assert run_ranks(_hooked, 1) == [[]]


def _kept() -> list[int]:
    counts = [len(seeds._generators)]
    held = [seeds.Generator() for _ in range(5)]
    counts.append(len(seeds._generators))
    held.clear()
    gc.collect()
    for _ in range(1000):
        seeds.Generator()
    counts.append(len(seeds._generators))
    return counts


def test_generators_that_are_gone_are_forgotten() -> None:
    ((before, five, after),) = run_ranks(_kept, 1)
    assert five == before + 5 and after <= before + 1


def _anew() -> list[list[float]]:
    drawn = []
    for _ in range(2):
        seeds.seed_all(1)
        seeds.seed_anew()
        drawn.append([torch.rand(1).item(), float(np.random.rand()), random.random()])
    return drawn


def test_seeded_anew_no_two_processes_draw_the_same() -> None:
    ((first, second),) = run_ranks(_anew, 1)
    assert all(one != two for one, two in zip(first, second, strict=True))


def _as_torchs() -> list[Any]:
    own = seeds.Generator(device="cpu").manual_seed(5)
    plain = torch._C.Generator().manual_seed(5)
    copies = [pickle.loads(pickle.dumps(own)), copy.deepcopy(own)]
    wanted = torch.rand(3, generator=plain).tolist()
    return [torch.rand(3, generator=one).tolist() == wanted for one in (own, *copies)]


def test_a_tracked_generator_draws_and_is_copied_as_torchs_own() -> None:
    assert run_ranks(_as_torchs, 1) == [[True] * 3]
