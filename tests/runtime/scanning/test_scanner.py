"""A scan of data sets, from beginning to end."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from lockstep.core.errors import UserError
from lockstep.runtime.recipe import Batching, Labels
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.result import Result
from lockstep.runtime.scanning.scanner import Scanner, in_all, merged, often_empty
from tests.bad_samples import Planted, good


class Task(Batching):
    def labels(self, batch: Any) -> Labels:
        return Labels(batch["label"], 3, 255)


def scan(recipe: Batching, workers: int = 2, timeout_s: float = 60.0, **splits: Dataset[Any]) -> Result:
    sources = [Source(split, data, len(data)) for split, data in splits.items()]  # type: ignore[arg-type]
    return Scanner("mine", sources, recipe, 0, workers, timeout_s).run()


EVERY = {
    3: "raises", 5: "kill", 7: "exit", 9: "hang", 11: "nan", 13: "label", 15: "shape", 17: "axes", 19: "bytes",
    21: "lacks", 23: "more", 25: "tuple", 27: "empty", 29: "nothing", 31: "ignored",
}  # fmt: skip
KINDS = {
    3: "unreadable", 5: "fatal", 7: "fatal", 9: "slow", 11: "nonfinite", 13: "label", 15: "shape", 17: "shape",
    19: "dtype", 21: "structure", 23: "structure", 25: "structure", 27: "empty", 29: "structure",
}  # fmt: skip


def test_every_fault_once_whatever_the_number_of_workers() -> None:
    data = Planted(60, EVERY, named=True)
    results = [scan(Task(), workers, 2.0, train=data, val=Planted(20, {})) for workers in (1, 3)]
    found = [(one.split, one.index, one.kind, one.where) for one in results[0].findings]
    assert sorted(found) == sorted(("train", i, kind, f"images/{i:03d}.png") for i, kind in KINDS.items())
    assert results[0].findings == results[1].findings
    assert results[0].splits == results[1].splits
    assert (results[0].splits[0].read, results[0].splits[0].bad) == (60, 14)
    json.dumps(results[0].values(), allow_nan=False)


def test_nothing_is_said_of_good_samples_with_noise() -> None:
    assert scan(Task(), train=Planted(300, {}), val=Planted(20, {})).findings == ()


class Texts(Dataset[Any]):
    """Lengths of their own, as tokens have."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Any:
        return torch.ones(self.lengths[index], dtype=torch.int64)


class Padding(Batching):
    """Pads, up to a length of 64."""

    def collate(self, samples: list[Any]) -> Any:
        if max(map(len, samples)) > 64:
            raise ValueError("at most 64 tokens")
        return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

    def labels(self, batch: Any) -> Labels:
        return Labels(batch, 2)


def test_lengths_are_right_where_collate_pads_and_wrong_where_it_stacks() -> None:
    lengths = [20] * 50 + [1 + i for i in range(40)]
    assert scan(Padding(), train=Texts(lengths)).findings == ()
    stacked = scan(Batching(), train=Texts(lengths)).findings
    assert [one.index for one in stacked] == [50 + i for i in range(40) if i != 19]
    assert {one.kind for one in stacked} == {"shape"}


def test_a_length_that_collate_refuses_is_named() -> None:
    (found,) = scan(Padding(), train=Texts([20] * 50 + [5, 65, 64])).findings
    assert (found.index, found.kind) == (51, "shape")
    assert "at most 64 tokens" in found.text


class Boxes(Dataset[Any]):
    def __init__(self, every: int) -> None:
        self.every = every

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        return {"image": torch.rand(3, 4), "boxes": torch.rand(0 if index % self.every == 0 else 1 + index % 3, 4)}


class Lists(Batching):
    def collate(self, samples: list[Any]) -> Any:
        return {"image": torch.stack([one["image"] for one in samples]), "boxes": [one["boxes"] for one in samples]}


def test_pictures_without_a_box_are_meant_where_there_are_many() -> None:
    (note,) = scan(Lists(), train=Boxes(4)).findings
    assert (note.kind, note.note, note.index) == ("often_empty", True, None)
    assert note.text == "boxes has no values (shape (0, 4)) in 15 of 60 samples, which collate takes"
    few = scan(Lists(), train=Boxes(20)).findings
    assert [(one.kind, one.index) for one in few] == [("empty", 0), ("empty", 20), ("empty", 40)]


def test_what_is_one_fault_is_said_once() -> None:
    def of(kind: str, index: int) -> Finding:
        return Finding(kind, "train", index, "", "")

    own = [of("collate", 1), of("collate", 2), of("empty", 3), of("label", 1)]
    assert merged(own, [of("structure", 1), of("shape", 3)]) == [
        of("collate", 2),
        of("empty", 3),
        of("label", 1),
        of("structure", 1),
    ]
    empty = [of("empty", index) for index in range(12)]
    assert often_empty(empty, [of("shape", index) for index in range(3)], "train", 20) == empty


class Folder(Planted):
    """Names its files; two samples share one, and there are files that make no sample."""

    def __init__(self, names: list[str], faults: dict[int, str], strays: list[tuple[str, str]]) -> None:
        super().__init__(len(names), faults)
        self.names, self._strays = names, strays

    def where(self, index: int) -> str:
        return self.names[index]

    def strays(self) -> Iterator[tuple[str, str]]:
        yield from self._strays


def test_files_twice_in_both_splits_and_without_a_sample() -> None:
    strays = [("mask.png", "a mask without an image"), ("b.png", "a mask without an image")]
    train = Folder(["a", "b, b.png", "c", "a"], {1: "raises"}, strays)
    val = Folder(["d", "c"], {}, strays)
    result = scan(Task(), train=train, val=val)
    said = [(one.kind, one.split, one.index, one.where) for one in result.findings]
    assert said == [
        ("unreadable", "train", 1, "b, b.png"),
        ("stray", "train", None, "mask.png"),  # b.png is a file of the sample above
        ("twice", "train", 3, "a"),
        ("both", "train", 2, "c"),
    ]
    assert len(result.errors) == 2


def test_strays_that_raise_are_told() -> None:
    class Broken(Folder):
        def strays(self) -> Iterator[tuple[str, str]]:
            raise OSError("no such folder")

    (found,) = scan(Task(), train=Broken(["a"], {}, [])).findings
    assert found.kind == "stray"
    assert found.text.startswith("raised OSError: no such folder")


def test_it_gives_up_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Planted(400, {1: "nan", **dict.fromkeys(range(100, 400), "exit")})
    result = scan(Task(), train=data)
    assert result.stopped.startswith("20 workers were lost one after the other")
    assert result.findings[-1].kind == "nonfinite"
    assert good(0)["label"].sum() == 0


def test_what_all_samples_share_is_said_once() -> None:
    nothing = Planted(12, dict.fromkeys(range(12), "nothing"))
    result = scan(Batching(), train=nothing)
    (found,) = result.findings
    assert (found.kind, found.index, result.splits[0].bad) == ("collate", None, 12)
    assert found.text.startswith("all 12 samples: TypeError")
    (bad, rest) = scan(Batching(), train=Planted(12, {**nothing.faults, 3: "raises"})).findings
    assert (bad.kind, bad.index, rest.kind) == ("unreadable", 3, "collate")
    assert rest.text.startswith("all other 11 samples: TypeError")
    assert len(in_all([Finding("collate", "train", index, "", "x") for index in range(3)], "train", 4)) == 3


def test_a_recipe_that_is_wrong_ends_the_scan() -> None:
    class Wrong(Batching):
        def labels(self, batch: Any) -> Any:
            return 5

    with pytest.raises(UserError, match=r"labels\(\) gave int"):
        scan(Wrong(), train=Planted(20, {}))
