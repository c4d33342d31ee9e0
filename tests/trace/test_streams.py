"""What a loader reads, and its name."""

import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from lockstep.trace.streams import Streams, describe, epoch_of, ids_of, innermost, length, root_ids, root_keys, root_of


class Numbers(Dataset[int]):
    def __init__(self, count: int = 8) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Endless(IterableDataset[int]):
    def __init__(self, told: Any = None) -> None:
        self.told = told

    def __len__(self) -> int:
        if isinstance(self.told, Exception):
            raise self.told
        return int(self.told)

    def __iter__(self) -> Iterator[int]:
        return iter(range(6))


class Augmented(Subset[Any]):
    def __getitem__(self, index: Any) -> Any:
        return -super().__getitem__(index)

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


def test_a_name_is_the_same_for_the_same_data_in_a_new_loader() -> None:
    streams, data = Streams(), Numbers()
    part = Subset(data, [1, 2])
    assert streams.of(data) is streams.of(data)
    assert streams.of(data).name == "Numbers/8/8#0"
    assert streams.of(part).name == "Numbers/8/2#0"
    other = Numbers()
    assert streams.of(other).name == "Numbers/8/8#1", "another object of the same kind"
    listed = [1, 2, 3]
    assert streams.of(listed) is streams.of(listed) and streams.of(listed).name == "list/3/3#0"


def test_data_that_is_gone_is_let_go_and_its_place_in_memory_is_no_name() -> None:
    streams, names = Streams(), []
    for _ in range(20):
        data = Numbers(100)
        gone = weakref.ref(data)
        names.append(streams.of(data).name)
        del data
        assert gone() is None
    assert len(set(names)) == 20


def test_indices_are_followed_through_subsets() -> None:
    data = Numbers(100)
    inner = Subset(data, list(range(99, 0, -1)))
    for picked in ([5, 6], np.array([5, 6]), torch.tensor([5, 6]), (5, 6)):
        outer = Subset(inner, picked)  # type: ignore[arg-type]
        assert root_of(outer) is data
        assert root_ids(outer, [1, 0]) == (93, 94)
    assert root_ids(data, torch.tensor([3, 4])) == (3, 4)
    assert root_ids(data, [(7, 3), (7, 4)]) == (3, 4), "a key of an epoch and an index"
    for unknown in (["name"], [None], [object()], [{"a": 1}], [Ellipsis]):
        assert root_ids(data, unknown) is None
        assert root_ids(inner, unknown) is None
    assert root_ids(Subset(data, [1]), [5]) is None


def test_a_subset_that_changes_what_it_picks_is_a_dataset_of_its_own() -> None:
    part = Augmented(Numbers(), [6, 7])
    assert root_of(Subset(part, [1])) is part
    assert root_ids(Subset(part, [1]), [0]) == (1,)


def test_the_length_is_asked_without_a_trace() -> None:
    assert [length(one) for one in (Numbers(3), [1], object(), iter([]), None)] == [3, 1, None, None, None]
    for error in (RuntimeError("x"), ValueError("x"), NotImplementedError(), KeyError("x"), TypeError()):
        assert length(Endless(error)) is None
    loader = DataLoader(Endless(2), 1)
    assert length(loader) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(loader)) == 6, "torch warns of a length that was asked for and is too short"
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 2"):
        list(loader)


def test_what_is_told_of_a_loader() -> None:
    data = Numbers()
    told = describe(DataLoader(data, 3, shuffle=True, drop_last=True), 4, "s", "a.py:1")
    assert (told.loader, told.stream, told.at) == (4, "s", "a.py:1")
    assert (told.dataset, told.length, told.batches, told.batch_size) == ("Numbers", 8, 2, 3)
    assert (told.sampler, told.shuffle, told.drop_last, told.ids) == ("RandomSampler", True, True, True)
    assert (told.sampler_ranks, told.sampler_rank, told.split) == (None, None, "")
    assert describe(DataLoader(data), 0, "s", "").shuffle is False


def test_the_sampler_is_found_inside_a_batch_sampler() -> None:
    data = Numbers()
    sampler = DistributedSampler(data, 2, 1, shuffle=False, drop_last=True)
    sampler.set_epoch(5)
    for loader in (
        DataLoader(data, 2, sampler=sampler),
        DataLoader(data, batch_sampler=BatchSampler(sampler, 2, False)),
        DataLoader(data, batch_size=None, sampler=sampler),
    ):
        told = describe(loader, 0, "s", "")
        assert innermost(loader) is sampler and epoch_of(loader) == 5
        assert (told.sampler, told.sampler_ranks, told.sampler_rank) == ("DistributedSampler", 2, 1)
        assert told.shuffle is False and told.drop_last


class Pairs(Sampler[list[int]]):
    epoch = "none"
    num_replicas = True

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1]])


def test_samplers_of_the_users_own() -> None:
    loader = DataLoader(Numbers(), batch_sampler=Pairs())
    told = describe(loader, 0, "s", "")
    assert (told.sampler, told.batch_sampler, told.batch_size, told.batches) == ("Pairs", "Pairs", None, None)
    assert (told.shuffle, told.sampler_ranks, epoch_of(loader)) == (None, None, None), "what is no number is left out"
    weighted = describe(DataLoader(Numbers(), sampler=WeightedRandomSampler([1.0] * 8, 8)), 0, "s", "")
    assert (weighted.sampler, weighted.shuffle) == ("WeightedRandomSampler", None)


def test_an_iterable_has_no_sampler_and_no_indices() -> None:
    told = describe(DataLoader(Endless(6), 2), 0, "s", "")
    assert (told.ids, told.sampler, told.length, told.batches, told.shuffle) == (False, "", None, 3, None)


def test_equal_splits_have_equal_digests() -> None:
    data = TensorDataset(torch.arange(9))
    splits = [
        describe(DataLoader(Subset(data, picked)), 0, "s", "").split  # type: ignore[arg-type]
        for picked in ([1, 2], torch.tensor([1, 2]), [2, 1], [1, 3])
    ]
    assert splits[0] == splits[1] and len(set(splits)) == 3


def test_what_a_sampler_adds_to_the_index_is_kept() -> None:
    data = Numbers(100)
    asked = [(7, 3), (7, 4)]
    assert root_keys(data, asked) == ((7, 3), (7, 4))
    assert ids_of(root_keys(data, asked) or ()) == (3, 4)
    wide = [(np.int64(320), "left", torch.tensor(3))]
    found = root_keys(data, wide)
    assert found == ((320, "left", 3),) and [type(part) for part in (found or ((),))[0]] == [int, str, int]
    assert root_keys(data, [(object(), 3)]) is None
    assert root_keys(data, [1, 2]) == (1, 2)
