"""Blocks of samples read in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from lockstep.runtime.data.samples import KeyedDataset
from lockstep.runtime.recipe import Batching, Labels
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.reading import NotLabelsError, Reader, Source
from lockstep.runtime.scanning.telling import name_digest
from lockstep.runtime.streams import preserved
from tests.bad_samples import Planted, Sample, Stream, good


class Task(Batching):
    def labels(self, batch: Any) -> Labels:
        return Labels(batch["label"], 3, 255)


@pytest.fixture(autouse=True)
def _random_state() -> Iterator[None]:
    with preserved():
        yield


def reader(data: Any, recipe: Batching | None = None, stream: bool = False, seed: int = 0) -> Reader:
    source = Source("train", data, None if stream else len(data))
    return Reader(source, recipe or Task(), seed, lambda index: None)


def test_a_good_block_leaves_numbers_only() -> None:
    read = reader(Planted(9, {}, named=True)).read(range(2, 9), one_by_one=False)
    assert read.indices.tolist() == list(range(2, 9))
    assert read.builds.tolist() == [0] * 7
    assert len(read.new) == 1
    assert read.sizes.tolist() == [(3 * 36) * 4 + 36 * 8] * 7
    assert read.names[0] == name_digest("images/002.png")
    assert read.counts is not None
    assert read.counts.sum() == 7 * 36
    assert (read.findings, read.done, read.ended) == ([], 7, False)


def test_faults_of_single_samples() -> None:
    data = Planted(12, {3: "raises", 5: "nan", 7: "label", 9: "empty", 10: "ignored"}, named=True)
    read = reader(data).read(range(12), one_by_one=False)
    found = [(one.kind, one.index, one.where) for one in read.findings]
    kinds = {3: "unreadable", 5: "nonfinite", 7: "label", 9: "empty"}
    assert sorted(found) == sorted((kind, index, f"images/{index:03d}.png") for index, kind in kinds.items())
    assert read.done == 12
    assert read.indices.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
    assert read.ignored == 36
    assert read.counts is not None
    assert read.counts.sum() == 9 * 36 + 36 - 13  # every right label once, of the sample with wrong ones too


def test_one_by_one_is_the_same() -> None:
    data = Planted(12, {3: "raises", 7: "label", 8: "shape"})
    together, alone = (reader(data).read(range(12), one_by_one=way) for way in (False, True))
    assert together.findings == alone.findings
    assert together.counts is not None
    assert together.counts.tolist() == alone.counts.tolist()  # type: ignore[union-attr]


def test_samples_are_those_of_the_training() -> None:
    kept: list[Sample] = []

    class Keeping(Task):
        def collate(self, samples: list[Any]) -> Any:
            kept.extend(samples)
            return super().collate(samples)

    reader(Planted(4, {}), Keeping(), seed=3).read(range(4), one_by_one=True)
    trained = KeyedDataset(Planted(4, {}), 3, "train").__getitems__([(0, index) for index in range(4)])
    for one, other in zip(kept, trained.samples, strict=True):  # type: ignore[union-attr]
        assert torch.equal(one["image"], other["image"])


def test_a_sample_that_collate_does_not_take_is_named_alone() -> None:
    class Picky(Task):
        def collate(self, samples: list[Any]) -> Any:
            if any(sample["label"][0, 0] == 2 for sample in samples):
                raise ValueError("no twos")
            return super().collate(samples)

    read = reader(Planted(6, {}), Picky()).read(range(6), one_by_one=False)
    assert [(one.kind, one.index) for one in read.findings] == [("collate", 2), ("collate", 5)]
    assert read.findings[0].text.startswith("ValueError: no twos (test_reading.py:")


def test_a_collate_that_pads_does_not_change_the_counts() -> None:
    class Texts(Dataset[Any]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> Any:
            return torch.ones(1 + index % 5, dtype=torch.int64)

    class Padding(Batching):
        def collate(self, samples: list[Any]) -> Any:
            return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=0)

        def labels(self, batch: Any) -> Labels:
            return Labels(batch, 2)

    whole = reader(Texts(), Padding()).read(range(40), one_by_one=False)
    assert whole.counts is not None
    assert whole.counts.tolist() == [0, 120]


def test_large_samples_are_not_copied_and_checked_all_the_same() -> None:
    class Large(Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            return {"image": torch.rand(3, 64, 64), "label": torch.tensor(9 if index == 4 else index % 3)}

    class Task(Batching):
        def labels(self, batch: Any) -> Labels:
            assert batch["image"].shape == (1, 3, 64, 64)
            return Labels(batch["label"], 3)

    read = reader(Large(), Task()).read(range(6), one_by_one=False)
    assert [(one.kind, one.index, one.text) for one in read.findings] == [("label", 4, "9; allowed: 0 .. 2")]
    assert read.counts is not None
    assert read.counts.tolist() == [2, 1, 2]


def test_a_recipe_without_labels() -> None:
    read = reader(Planted(4, {}), Batching()).read(range(4), one_by_one=False)
    assert (read.counts, read.findings) == (None, [])


def test_a_stream_in_two_blocks_to_its_end() -> None:
    one = reader(Stream(Planted(10, {4: "nan"})), stream=True)
    first, second = one.read(range(6), False), one.read(range(6, 12), False)
    assert (first.done, first.ended, second.done, second.ended) == (6, False, 4, True)
    assert [(found.kind, found.index) for found in first.findings] == [("nonfinite", 4)]


def test_a_stream_that_raises() -> None:
    read = reader(Stream(Planted(10, {4: "raises"})), stream=True).read(range(8), False)
    assert (read.done, read.ended) == (5, True)
    assert read.findings[0].text.endswith("; the stream ends there")


def test_a_stream_that_goes_on_after_an_error_and_one_that_never_does() -> None:
    class Steps(IterableDataset[Any]):
        def __init__(self, bad: range) -> None:
            self.bad = bad

        def __iter__(self) -> Iterator[Any]:
            return Walk(self.bad)

    class Walk:
        def __init__(self, bad: range) -> None:
            self.at, self.bad = -1, bad

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            self.at += 1
            if self.at in self.bad:
                raise OSError("lost")
            if self.at == 30:
                raise StopIteration
            return good(self.at)

    read = reader(Steps(range(2, 4)), stream=True).read(range(40), False)
    assert ([one.index for one in read.findings], read.done, read.ended) == ([2, 3], 30, True)
    read = reader(Steps(range(2, 10**9)), stream=True).read(range(1000), False)
    assert (len(read.findings), read.ended) == (20, True)


def test_a_stream_from_its_middle_and_back() -> None:
    beats: list[int | None] = []
    one = Reader(Source("train", Stream(Planted(10, {})), None), Task(), 0, beats.append)
    late = one.read(range(6, 8), False)
    assert late.indices.tolist() == [6, 7]
    assert beats[:7] == [6, 0, 1, 2, 3, 4, 5]  # each item of the way has its own time
    assert one.sample(3)["label"][0, 0] == 0
    assert one.sample(5)["label"][0, 0] == 2


def test_stop_iteration_of_a_map_style_set_is_no_end() -> None:
    class Odd(Planted):
        def __getitem__(self, index: int) -> Any:
            return next(iter([])) if index == 1 else good(index)

    read = reader(Odd(3, {})).read(range(3), False)
    assert (read.done, read.ended, read.findings[0].index) == (3, False, 1)


def test_a_finding_names_no_file_where_the_set_does_not(tmp_path: Path) -> None:
    assert reader(Planted(3, {})).finding("label", 2, "x") == Finding("label", "train", 2, "", "x")


class Mute(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, BaseException, Mute])
def test_whatever_a_data_set_raises_is_a_finding(kind: type[BaseException]) -> None:
    class Odd(Planted):
        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise kind
            return good(index)

    (found,) = reader(Odd(3, {})).read(range(3), False).findings
    assert (found.kind, found.index) == ("unreadable", 1)
    assert found.text.startswith(kind.__name__)


def test_a_sample_that_cannot_be_taken_apart_is_a_finding() -> None:
    ring: list[Any] = []
    ring.append(ring)
    deep: list[Any] = [None]
    for _ in range(5000):
        deep = [deep]

    class Odd(Planted):
        def __getitem__(self, index: int) -> Any:
            return {1: ring, 2: deep}.get(index) or good(index)

    read = reader(Odd(5, {})).read(range(5), False)
    assert [(one.kind, one.index) for one in read.findings] == [("structure", 1), ("structure", 2)]
    assert "holds itself" in read.findings[0].text
    assert "nested too deep" in read.findings[1].text
    assert (read.done, read.indices.tolist()) == (5, [0, 3, 4])


def test_labels_that_are_none_of_ours_are_a_fault_of_the_recipe() -> None:
    class Wrong(Batching):
        def labels(self, batch: Any) -> Any:
            return 5

    for one_by_one in (False, True):
        with pytest.raises(NotLabelsError, match=r"labels\(\) gave int"):
            reader(Planted(3, {}), Wrong()).read(range(3), one_by_one)


def test_what_the_default_collate_does_not_take() -> None:
    read = reader(Planted(2, {0: "nothing", 1: "nothing"}), Batching()).read(range(2), False)
    assert {one.kind for one in read.findings} == {"collate"}
    assert read.findings[0].text.endswith("; or write collate(samples) in the recipe")
