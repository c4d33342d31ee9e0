"""Loaders: ordinary ones, whose samples depend neither on the workers nor on N, and whose errors are named."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.data import loader as module
from lockstep.runtime.data.loader import Reading, TrainLoader, eval_loader, sized
from lockstep.runtime.recipe import Batching
from lockstep.runtime.world import Place, World
from tests.runtime.data.sources import Noisy, NoisyStream, Task, world_of

Seen = dict[int, tuple[float, ...]]


def seen(batches: Any) -> Seen:
    return {
        index: tuple(draws)
        for batch in batches
        for index, draws in zip(batch["index"].tolist(), batch["draws"].tolist(), strict=True)
    }


def epochs_of(workers: int, ranks: int, starts: list[tuple[int, int]]) -> list[Seen]:
    """What all ranks read in the epochs, by index; each rank has one loader for all of them."""
    found: list[Seen] = [{} for _ in starts]
    for rank in range(ranks):
        loader = TrainLoader(Noisy(23), Task(), Reading(workers, seed=3), world_of(rank, ranks), 6, 2)
        for one, (epoch, start) in zip(found, starts, strict=True):
            one |= seen(loader.epoch(epoch, start))
    return found


STARTS = [(0, 0), (1, 12), (0, 0)]


def test_samples_are_the_same_with_every_number_of_workers_and_ranks() -> None:
    whole = epochs_of(0, 1, STARTS)
    assert [len(one) for one in whole] == [23, 11, 23]
    assert whole[0] == whole[2]
    assert not set(whole[0].values()) & set(whole[1].values())  # a persistent worker sees the epoch
    for workers, ranks in ((0, 2), (1, 1), (2, 2)):
        assert epochs_of(workers, ranks, STARTS) == whole


@pytest.mark.parametrize("workers", [0, 1])
def test_iterating_draws_nothing_from_the_global_generators(workers: int) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    loader = TrainLoader(Noisy(12), Task(), Reading(workers), world_of(0, 1), 6, 1)
    for epoch in range(2):
        list(loader.epoch(epoch))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]  # type: ignore[index]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_that_is_left_early_does_not_show_in_the_next(workers: int) -> None:
    loader = TrainLoader(Noisy(24), Task(), Reading(workers), world_of(0, 1), 6, 1)
    whole = [batch["index"].tolist() for batch in loader.epoch(1)]
    batches = loader.epoch(0)
    next(batches)
    del batches
    assert [batch["index"].tolist() for batch in loader.epoch(1)] == whole
    assert [batch["index"].tolist() for batch in loader.epoch(1, 12)] == whole[2:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_label_out_of_range_is_named_by_rank_index_and_value(workers: int, ranks: int) -> None:
    errors = []
    for rank in range(ranks):
        data = Noisy(12, label=(7, 5))
        loader = TrainLoader(data, Task(), Reading(workers), world_of(rank, ranks), 4, 1)
        try:
            list(loader.epoch(3))
        except UserError as error:
            errors.append((rank, str(error)))
    ((rank, text),) = errors
    assert text.startswith(f"rank {rank}: label 5 is outside the classes.")
    assert "train sample 7, epoch 3" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_raises_is_named_and_the_batches_before_it_come(workers: int) -> None:
    loader = TrainLoader(Noisy(12, raises=7), Task(), Reading(workers), world_of(0, 1), 4, 1, shuffle=False)
    batches = loader.epoch(0)
    assert next(batches)["index"].tolist() == [0, 1, 2, 3]
    # A caught error would keep this frame, and with it the worker processes.
    with pytest.raises(RunError, match=r"^rank 0: reading train sample 7 raised OSError: cannot read image.png"):
        next(batches)


def test_evaluation_batches_are_dealt_and_numbered() -> None:
    whole: dict[int, list[int]] = {}
    for rank in range(3):
        sampler, loader = eval_loader(Noisy(10), Task(), Reading(), world_of(rank, 3), 4)
        for number, batch in zip(sampler.batches, loader, strict=True):
            whole[number] = batch["index"].tolist()
    assert [whole[number] for number in sorted(whole)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("workers", [0, 1])
def test_evaluation_is_the_same_each_time_and_draws_otherwise_than_training(workers: int) -> None:
    _, loader = eval_loader(Noisy(10), Task(), Reading(workers), world_of(0, 1), 4)
    first = seen(loader)
    assert seen(loader) == first
    train = seen(TrainLoader(Noisy(10), Task(), Reading(), world_of(0, 1), 4, 1).epoch(0))
    assert not set(train.values()) & set(first.values())


class NoLength(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (Noisy(0), "val_data() gave an empty data set"),
        (NoLength(), "val_data() gave a NoLength without a length"),
        (NoisyStream(3), "val_data() gave a NoisyStream without a length"),
        ([], "val_data() gave an empty data set"),
    ],
)
def test_a_data_set_without_samples_is_refused(data: Any, says: str) -> None:
    with pytest.raises(UserError) as caught:
        eval_loader(data, Task(), Reading(), world_of(0, 1), 4)
    assert says in str(caught.value)
    assert "recipe" in str(caught.value)


def test_without_a_recipe_batches_are_torchs_own() -> None:
    loader = TrainLoader(Noisy(6, label=(2, 99)), Batching(), Reading(), world_of(0, 1), 4)
    assert [len(batch["index"]) for batch in loader.epoch(0)] == [4, 2]


def test_a_plain_list_is_a_data_set() -> None:
    assert sized([1, 2, 3], "train_data") == 3  # type: ignore[arg-type]


def test_a_stream_has_no_length() -> None:
    loader = TrainLoader(NoisyStream(5), Task(), Reading(), world_of(0, 1), 2, 1)
    assert loader.length is None
    assert isinstance(loader.source, IterableDataset)


def on(device: str, ranks_per_node: int) -> World:
    return World(Place(0, ranks_per_node, 0, ranks_per_node), torch.device(device))


@pytest.mark.parametrize(
    ("workers", "device", "cores", "ranks", "expected"),
    [
        (0, "cuda", 64, 1, 0),
        (5, "cpu", 2, 1, 5),
        ("auto", "cpu", 64, 1, 0),  # the cores of a CPU are the ranks' own
        ("auto", "cuda", 64, 1, 8),
        ("auto", "cuda", 64, 8, 7),
        ("auto", "cuda", 4, 4, 1),
        ("auto", "cuda", 2, 8, 1),
    ],
)
def test_sensible_numbers_of_workers(
    monkeypatch: pytest.MonkeyPatch, workers: Any, device: str, cores: int, ranks: int, expected: int
) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: cores)
    assert Reading(workers).num_workers(on(device, ranks)) == expected
