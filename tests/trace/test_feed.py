"""Batches from the reference's record: the same samples, whole or shared out, whatever the script's own order is."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler, Subset

from lockstep.trace.events import Batch, Loader, Pass, PassEnd
from lockstep.trace.feed import FeedPlan, match
from lockstep.trace.kept import Kept, pass_file
from tests.trace.recording import Seen, bare, record, record_one


class Noisy(Dataset[Any]):
    """Its index, and noise from all three libraries."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, torch.rand(1).item(), np.random.rand(), random.random()


class Negative(Subset[Any]):
    """A subset with a transform of its own."""

    def __getitem__(self, index: Any) -> Any:
        return -1 - super().__getitem__(index)[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Flow(IterableDataset[float]):
    def __iter__(self) -> Iterator[float]:
        return iter([random.random() for _ in range(8)])


def _script(seed: int, batch: int, epochs: int = 2, pick: bool = False) -> list[list[Any]]:
    """Batches of a training set, passes on end, then of a stream. Seeds and batch are those of one script among two."""
    torch.manual_seed(seed)
    data: Any = Noisy(16)
    if pick:
        data = Subset(Subset(data, range(15, -1, -1)), range(1, 13))
    loader = DataLoader(data, batch, shuffle=True, num_workers=2)
    read = [[part.tolist() for part in batch] for _ in range(epochs) for batch in loader]
    drawn = [torch.rand(2).tolist(), np.random.rand(), random.random()]
    return [read, drawn, [batch.tolist() for batch in DataLoader(Flow(), batch)]]


def _feed(folder: Path, role: Any, **options: Any) -> FeedPlan:
    (folder / "feed").mkdir(exist_ok=True)
    return FeedPlan(role, folder / "feed", **options)


def _reference(folder: Path, pick: bool = False, **options: Any) -> Seen:
    one = folder / "one"
    one.mkdir()
    return record_one(one, _script, 1, 4, 2, pick, feed=_feed(folder, "record", **options))


def _indices(seen: Seen) -> list[tuple[int, ...] | None]:
    return [one.ids for one in seen.of(Batch) if one.stream.startswith("Noisy")]


@pytest.mark.parametrize("pick", [False, True])
def test_a_rank_reads_the_references_batches_or_its_rows_of_them(tmp_path: Path, pick: bool) -> None:
    reference = _reference(tmp_path, pick)
    batches, _, flow = reference.result
    assert _indices(reference) == [tuple(batch[0]) for batch in batches], "as told, so read"
    assert len(set(_indices(reference))) > len(batches) // 2
    (whole,) = record(_new(tmp_path, "mirror"), _script, 2, 2, 2, pick, feed=_feed(tmp_path, "mirror"))
    assert whole.result == reference.result, "noise and later draws too, though seeds and batch are others"
    parts = [
        record_one(
            _new(tmp_path, f"shard-{rank}"),
            _script,
            9,
            2,
            2,
            pick,
            feed=_feed(tmp_path, "shard", rank=rank, num_ranks=2),
        )
        for rank in range(2)
    ]
    for number, batch in enumerate(batches):
        rows = [one.result[0][number] for one in parts]
        assert [left + right for left, right in zip(*rows, strict=True)] == batch
    assert [one + two for one, two in zip(*(part.result[2] for part in parts), strict=True)] == flow
    assert parts[0].result[1] == parts[1].result[1]
    for part in parts:
        assert _indices(part) == [tuple(batch[0]) for batch in part.result[0]]
        assert [one.size for one in part.of(Batch)] == [2] * (len(batches) + 2)
        assert [one.number for one in part.of(Pass)] == [0, 1, 0] and len(part.of(PassEnd)) == 3


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_batches_may_be_grown_cut_and_regrouped(tmp_path: Path) -> None:
    reference = _reference(tmp_path, grow=3, multiple=5)
    sizes = [len(batch[0]) for batch in reference.result[0]]
    assert sizes == [10, 10], "three of four, cut to a multiple of five; the last four are too few"
    options: dict[str, Any] = {"per": (1, 5)}
    part = record_one(
        _new(tmp_path, "shard"), _script, 1, 1, feed=_feed(tmp_path, "shard", num_ranks=2, rank=1, **options)
    )
    read = [batch[0] for batch in part.result[0]]
    assert [len(one) for one in read] == [1] * 10
    whole = reference.result[0][0][0]
    assert [one[0] for one in read[:5]] == [whole[2 * turn + 1] for turn in range(5)]


def test_some_streams_are_read_whole(tmp_path: Path) -> None:
    reference = _reference(tmp_path)
    plan = _feed(tmp_path, "shard", num_ranks=2, whole=("Flow/None/None#0",))
    part = record_one(_new(tmp_path, "shard"), _script, 1, 2, feed=plan)
    assert part.result[2] == reference.result[2] and part.result[0] != reference.result[0]


def test_a_pass_that_the_reference_has_not_is_the_scripts_own(tmp_path: Path) -> None:
    _reference(tmp_path)
    longer = record_one(_new(tmp_path, "mirror"), _script, 1, 2, 3, feed=_feed(tmp_path, "mirror"))
    assert [len(batch[0]) for batch in longer.result[0]] == [4] * 8 + [2] * 8


def test_a_run_that_goes_on_draws_as_if_it_had_read_what_came_before(tmp_path: Path) -> None:
    reference = _reference(tmp_path)
    begun = (("Noisy/16/16#0", 1, 0),)
    later = record_one(_new(tmp_path, "mirror"), _script, 1, 4, 1, feed=_feed(tmp_path, "mirror", begun=begun))
    assert later.result[0] == reference.result[0][4:]


def _doubled() -> list[str]:
    data = [(torch.ones(2), 1, torch.ones(1, dtype=torch.int32), "a") for _ in range(2)]
    ((one, two, three, four),) = DataLoader(data, 2)  # type: ignore[arg-type]
    return [str(one.dtype), str(two.dtype), str(three.dtype), *four]


def test_floating_values_in_double(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _doubled, feed=_feed(tmp_path, "own", double=True))
    assert seen.result == ["torch.float64", "torch.int64", "torch.int32", "a", "a"]


def _transformed() -> list[list[int]]:
    return [batch.tolist() for batch in DataLoader(Negative(Noisy(8), [4, 5, 6, 7]), 2)]


def test_a_subset_with_a_transform_is_not_gone_around(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _transformed, feed=_feed(tmp_path, "record"))
    assert seen.result == [[-5, -6], [-7, -8]]
    assert seen.of(Loader)[0].root == "Negative"


def test_streams_are_matched_by_name_then_by_kind_then_by_order() -> None:
    known = ["A/8/8#0", "A/8/8#1", "B/9/9#0"]
    assert match("A/8/8#1", 0, known) == "A/8/8#1"
    assert match("A/8/4#0", 2, known) == "A/8/8#0", "a share of the same root"
    assert match("C/5/5#0", 2, known) == "B/9/9#0"
    assert match("C/5/5#0", 3, known) is None


def test_files_of_passes_have_plain_names(tmp_path: Path) -> None:
    assert pass_file(tmp_path, "../A b/8/8#0", 3) == tmp_path / "pass----A-b-8-8-0-3"


def test_kept_batches_are_cut_and_joined_with_their_content() -> None:
    one, two = Kept((1, 2), torch.tensor([1, 2])), Kept((3,), torch.tensor([3]))
    joined = Kept.join([one, two])
    assert joined.keys == (1, 2, 3) and joined.batch.tolist() == [1, 2, 3] and joined.size == 3
    assert joined.rows(1, 3).keys == (2, 3) and joined.rows(1, 3).batch.tolist() == [2, 3]
    assert Kept.join([Kept((1,), None), Kept((2,), None)]) == Kept((1, 2), None)
    assert Kept.join([Kept(None, torch.zeros(2, 1)), Kept(None, torch.zeros(1, 1))]).size == 3


class Sized(Dataset[Any]):
    """Asked for (size, index) by a sampler that chooses the size of the pictures, or for a list of indices at once."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, key: Any) -> Any:
        return torch.tensor(key) if isinstance(key, list) else {"size": key[0], "index": key[1]}


class Sizes(Sampler[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(320 + 32 * (index // 4), index) for index in range(8)])


def _sizes() -> list[Any]:
    read = [{name: part.tolist() for name, part in one.items()} for one in DataLoader(Sized(), 4, sampler=Sizes())]
    lists = DataLoader(Sized(), batch_size=None, sampler=BatchSampler(SequentialSampler(Sized()), 4, False))
    single = DataLoader(Sized(), batch_size=None, sampler=Sizes())
    return [read, [one.tolist() for one in lists], [one["index"] for one in single]]


def test_a_dataset_is_asked_as_its_sampler_asks(tmp_path: Path) -> None:
    (plain,) = bare(_sizes)
    assert plain[0][1] == {"size": [352] * 4, "index": [4, 5, 6, 7]}
    one = record_one(_new(tmp_path, "one"), _sizes, feed=_feed(tmp_path, "record"))
    assert one.result == plain
    assert [batch.ids for batch in one.of(Batch)][:2] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert one.of(Batch)[1].keys == ((352, 4), (352, 5), (352, 6), (352, 7))
    assert record_one(_new(tmp_path, "two"), _sizes, feed=_feed(tmp_path, "mirror")).result == plain
    part = record_one(_new(tmp_path, "part"), _sizes, feed=_feed(tmp_path, "shard", num_ranks=2, rank=1))
    assert part.result[0] == [{"size": [320] * 2, "index": [2, 3]}, {"size": [352] * 2, "index": [6, 7]}]
    assert part.result[1] == [[2, 3], [6, 7]]
    assert record_one(_new(tmp_path, "bare"), _sizes).of(Batch)[1].keys == one.of(Batch)[1].keys
