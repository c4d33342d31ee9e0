"""What is told of loaders, passes and batches."""

import gc
from pathlib import Path
from typing import TypeVar

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset

from lockstep.trace.events import Batch, Event, Loader, Pass, PassEnd, RandomState, SetEpoch
from tests.trace.hooks.recorded import recorded

E = TypeVar("E", bound=Event)


def _points() -> TensorDataset:
    return TensorDataset(torch.arange(8.0).reshape(8, 1), torch.arange(8) % 2)


def _of(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def _shared_out() -> None:
    part = Subset(_points(), range(7, 1, -1))
    sampler = DistributedSampler(part, 2, 1, shuffle=False)
    loader = DataLoader(part, 2, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        list(loader)


def test_a_loader_with_a_sampler_that_knows_the_ranks(tmp_path: Path) -> None:
    events = recorded(tmp_path, "data", _shared_out)
    (one,) = _of(events, Loader)
    assert (one.stream, one.root_length, one.length, one.batches) == ("TensorDataset/8/6#0", 8, 6, 2)
    assert (one.sampler, one.sampler_ranks, one.sampler_rank, one.shuffle) == ("DistributedSampler", 2, 1, False)
    assert one.split and one.ids and "test_data.py" in one.at
    assert [(each.number, each.epoch) for each in _of(events, Pass)] == [(0, 0), (1, 1)]
    assert [each.ids for each in _of(events, Batch)] == [(6, 4), (2,)] * 2, "indices of what stands under the Subset"
    assert [each.batches for each in _of(events, PassEnd)] == [2, 2]
    assert [(each.value, each.loader) for each in _of(events, SetEpoch)] == [(0, None), (1, 0)]


def test_what_the_samples_hold(tmp_path: Path) -> None:
    first = _of(recorded(tmp_path, "data", _shared_out), Batch)[0]
    assert list(first.rows) == ["0", "1"] and [len(rows) for rows in first.rows.values()] == [2, 2]
    assert first.rows["0"][0] != first.rows["0"][1] and first.rows["1"][0] == first.rows["1"][1]


class _Stream(IterableDataset[torch.Tensor]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(torch.arange(4.0))


def _streams() -> None:
    list(DataLoader(_Stream(), 2))


def test_a_stream_has_rows_and_no_indices(tmp_path: Path) -> None:
    events = recorded(tmp_path, "data", _streams)
    assert not _of(events, Loader)[0].ids
    assert [(each.ids, each.size, len(each.rows[""])) for each in _of(events, Batch)] == [(None, 2, 2)] * 2


def _one_after_another() -> None:
    for _ in range(3):
        list(DataLoader(_points(), 4))
        gc.collect()


def test_a_loader_that_is_gone_keeps_its_number(tmp_path: Path) -> None:
    told = _of(recorded(tmp_path, "data", _one_after_another), Loader)
    assert [one.loader for one in told] == [0, 1, 2]
    assert [one.stream[-2:] for one in told] == ["#0", "#1", "#2"]


def _leaves() -> None:
    loader = DataLoader(_points(), 4, shuffle=True)
    with torch.no_grad():
        next(iter(loader))
    next(iter(loader))


def test_a_pass_that_is_left_has_no_end(tmp_path: Path) -> None:
    events = recorded(tmp_path, "data", _leaves)
    assert [one.grad for one in _of(events, Pass)] == [False, True]
    assert not _of(events, PassEnd)
    states = _of(events, RandomState)
    assert [one.when for one in states] == ["pass", "fetch", "batch"], "in training only"
    assert states[0].torch != states[-1].torch, "the permutation was drawn"
