"""What is told of loaders, passes and batches."""

import gc
import weakref
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset

from lockstep.trace.events import Batch, Event, Loader, Pass, PassEnd, Raised, RandomState, SetEpoch
from tests.trace.hooks.loaders import Listed, Numbers, Shared, every_kind, flat
from tests.trace.hooks.recorded import recorded
from tests.trace.recording import bare, record_one

# The workers are forked from a process with one thread of its own; 3.12 warns of forks in general.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

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


def _every_kind() -> tuple[dict[str, list[list[list[int]]]], list[float]]:
    torch.manual_seed(3)
    read: dict[str, list[list[list[int]]]] = {}
    for name, loader in every_kind().items():
        passes = [[flat(batch) for batch in loader]]
        left = []
        for batch in loader:
            left.append(flat(batch))
            if len(left) == 2:
                break
        passes += [left, [flat(batch) for batch in loader]]
        read[name] = passes
    return read, torch.rand(3).tolist()


def test_indices_are_those_of_the_samples_that_the_script_gets(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _every_kind)
    read, drawn = seen.result
    assert [(read, drawn)] == bare(_every_kind), "what the script reads and draws is as without a recorder"
    assert [one.loader for one in seen.of(Loader)] == list(range(len(read)))
    for number, (name, passes) in enumerate(read.items()):
        mine = [one for one in seen.of(Batch) if one.loader == number]
        told = [[list(one.ids or ()) for one in mine if one.number == which] for which in range(3)]
        assert told == passes, name
        assert [one.batch for one in mine if one.number == 2] == list(range(len(passes[2]))), name
        assert all(one.size == len(one.ids or ()) for one in mine), name
        ended = [(one.number, one.batches) for one in seen.of(PassEnd) if one.loader == number]
        whole = [0, 1, 2] if len(passes[0]) < 2 else [0, 2]  # the second pass was left
        assert ended == [(which, len(passes[which])) for which in whole], name


def _side_by_side() -> list[list[int]]:
    loader = DataLoader(Numbers(6), 2, shuffle=True)
    both = [[flat(one), flat(two)] for one, two in zip(loader, loader, strict=True)]
    iterator = iter(loader)
    rest = [flat(batch) for batch in iterator]
    assert next(iterator, None) is next(iterator, None) is None
    return [flat for pair in both for flat in pair] + rest


def test_two_passes_at_once_and_asking_beyond_the_end(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _side_by_side)
    assert [list(one.ids or ()) for one in seen.of(Batch)] == seen.result
    assert [one.number for one in seen.of(Batch)] == [0, 1, 0, 1, 0, 1, 2, 2, 2]
    assert [one.number for one in seen.of(PassEnd)][-1] == 2 and len(seen.of(PassEnd)) <= 3


def _as_they_come() -> None:
    list(DataLoader(Numbers(8), 2, num_workers=2, in_order=False))


def test_where_batches_come_as_they_are_ready_no_indices_are_claimed(tmp_path: Path) -> None:
    batches = record_one(tmp_path, _as_they_come).of(Batch)
    assert [one.ids for one in batches] == [None] * 4
    assert len({row for one in batches for row in one.rows[""]}) == 8


def _iterables() -> None:
    for split in (True, False):
        for workers in (0, 2):
            list(DataLoader(Shared(split), 2, num_workers=workers))


def test_content_tells_whether_workers_share_an_iterable(tmp_path: Path) -> None:
    batches = record_one(tmp_path, _iterables).of(Batch)
    rows = [[row for one in batches if one.loader == number for row in one.rows[""]] for number in range(4)]
    assert [len(one) for one in rows] == [8, 8, 8, 16]
    assert sorted(rows[0]) == sorted(rows[1]) == sorted(rows[2]) == sorted(set(rows[3]))


class _Fails(Numbers):
    def __getitem__(self, index: int) -> int:
        raise KeyError(index) if index == 2 else SystemError("odd")


class _Stops(Listed):
    def __iter__(self):  # type: ignore[no-untyped-def]
        yield 0
        raise OSError("no more")


def _errors() -> list[str]:
    met = []
    for loader in (
        DataLoader(_Fails(4), 1, sampler=Listed([2])),
        DataLoader(_Fails(4), 1, sampler=Listed([1])),
        DataLoader(Numbers(4), 1, sampler=_Stops([])),
    ):
        try:
            list(loader)
        except Exception as error:
            met.append(f"{type(error).__name__}: {error}")
    return met


def test_errors_pass_through_and_each_is_told_once(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _errors)
    assert seen.result == ["KeyError: 2", "SystemError: odd", "OSError: no more"]
    assert [one.error for one in seen.of(Raised)] == seen.result
    assert {one.through for one in seen.of(Raised)} == {"batch"}


STRANGE: dict[str, Any] = {
    "nothing": None,
    "an object": object(),
    "no dimension": torch.tensor(1.0),
    "float8": torch.ones(2, 3).to(torch.float8_e4m3fn),
    "bfloat16": torch.ones(2, 3, dtype=torch.bfloat16),
    "complex": torch.ones(2, dtype=torch.complex64).conj(),
    "sparse": torch.eye(2).to_sparse(),
    "meta": torch.empty(2, 3, device="meta"),
    "no columns": torch.zeros(2, 0),
    "no rows": torch.zeros(0, 2),
    "words": {"text": ["a", "b"], 3: ("x", None)},
    "arrays": [np.ones((2, 2)), np.array(["a", "b"])],
}


class _Unmeasured:
    def __len__(self) -> int:
        raise RuntimeError("not yet")

    def __getitem__(self, index: int) -> int:
        return index


class _TooShort(IterableDataset[int]):
    def __len__(self) -> int:
        return 2

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(range(6))


def _strange() -> list[str]:
    for value in STRANGE.values():
        (got,) = DataLoader(Numbers(2), 2, collate_fn=lambda _, value=value: value)
        assert got is value
    assert len(list(DataLoader(_Unmeasured(), 2, sampler=Listed([1, 2, 3])))) == 2  # type: ignore[arg-type]
    assert len(list(DataLoader(np.arange(8.0), 2))) == 4  # type: ignore[arg-type]
    assert len(list(DataLoader(_TooShort(), 1))) == 6  # a warning here would be an error
    sampler = DistributedSampler(Numbers(4), 2, 0)
    loader = DataLoader(Numbers(4), 2, sampler=sampler)
    sampler.set_epoch(1)
    return [str(len(batch)) for batch in loader]


def test_strange_batches_and_datasets_reach_the_script_untouched(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _strange)
    sizes = [one.size for one in seen.of(Batch)]
    assert sizes[: len(STRANGE)] == [2] * len(STRANGE), "as many as the sampler asked for"
    assert seen.of(SetEpoch)[0].value == 1


def _let_go() -> bool:
    data = Numbers(1000)
    gone = weakref.ref(data)
    list(DataLoader(data, 500))
    del data
    gc.collect()
    return gone() is None


def test_the_recorder_keeps_no_dataset_alive(tmp_path: Path) -> None:
    assert record_one(tmp_path, _let_go).result
