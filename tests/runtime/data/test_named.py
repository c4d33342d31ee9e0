"""Files of samples, seen through torch's own data sets."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from lockstep.runtime.data.broken import Broken
from lockstep.runtime.data.named import HasStrays, Named, error_text, strays_of, where_of
from lockstep.runtime.data.samples import Collate, KeyedDataset
from lockstep.runtime.recipe import Batching, Labels


class Files(Dataset[int]):
    def __init__(self, prefix: str, strays: tuple[str, ...] = ()) -> None:
        self.prefix, self._strays = prefix, strays

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        return index

    def where(self, index: int) -> str:
        return f"{self.prefix}{range(5)[index]}.png"

    def strays(self) -> Iterator[tuple[str, str]]:
        yield from ((name, "a mask without an image") for name in self._strays)


def unnamed() -> Dataset[Any]:
    return TensorDataset(torch.zeros(3))


def test_a_set_says_where_a_sample_comes_from() -> None:
    assert isinstance(Files("a"), Named)
    assert isinstance(Files("a"), HasStrays)
    assert where_of(Files("a"), 3) == "a3.png"
    assert where_of(unnamed(), 0) == ""


def test_through_parts_and_sums_of_sets() -> None:
    both = ConcatDataset([Files("a"), unnamed(), Files("b")])  # type: ignore[list-item]  # any sets
    assert [where_of(both, index) for index in (0, 4, 5, 7, 8, 12)] == ["a0.png", "a4.png", "", "", "b0.png", "b4.png"]
    part = Subset(both, [12, 2, 5])
    assert [where_of(part, index) for index in range(3)] == ["b4.png", "a2.png", ""]
    assert where_of(Subset(part, torch.tensor([1])), 0) == "a2.png"  # type: ignore[arg-type]


def test_a_name_that_cannot_be_told_does_not_hide_what_is_told_of() -> None:
    assert where_of(Files("a"), 7) == "(where(7) raised IndexError: range object index out of range)"


def test_strays_once_and_sorted() -> None:
    both = ConcatDataset([Files("a", ("z", "y")), Subset(Files("b", ("y", "x")), [0]), unnamed()])  # type: ignore[list-item]
    assert [name for name, _ in strays_of(both)] == ["x", "y", "z"]
    assert strays_of(unnamed()) == []


def test_another_method_of_that_name_is_left_alone() -> None:
    class Table(Files):
        def where(self, index: int) -> Any:
            return [index]

    assert where_of(Table("a"), 1) == ""
    assert where_of(torch.zeros(3), 1) == ""


class Raising(Files):
    def __getitem__(self, index: int) -> int:
        raise OSError("truncated")


def test_a_training_that_fails_on_a_sample_names_its_file() -> None:
    broken = KeyedDataset(Raising("a"), 0, "train").__getitems__([(2, 3)])
    assert isinstance(broken, Broken)
    assert "reading train sample 3 raised OSError: truncated" in broken.message
    assert "Where: epoch 2, a3.png, " in broken.message

    class Task(Batching):
        def labels(self, batch: Any) -> Labels:
            return Labels(batch, 3)

    broken = Collate(Task(), "val")(KeyedDataset(Files("a"), 0, "val").__getitems__([(0, 1), (0, 4)]))
    assert "label 4 is outside the classes" in broken.message
    assert broken.message.splitlines()[2] == "  Where: val sample 4, epoch 0, a4.png"


def test_strays_that_are_no_pairs_are_told_as_such() -> None:
    class Wrong(Files):
        def __init__(self, given: Any) -> None:
            super().__init__("a")
            self.given = given

        def strays(self) -> Any:
            return self.given

    for given, words in ((None, "gave NoneType"), ([("a",)], "gave a tuple among"), ([5], "gave a int among")):
        with pytest.raises(TypeError, match=words):
            strays_of(Wrong(given))


def test_an_error_whose_text_raises() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert error_text(MuteError()) == "(its text raised RuntimeError)"
    assert error_text(ValueError("a")) == "a"
