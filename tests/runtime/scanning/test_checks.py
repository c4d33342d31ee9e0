"""Pure checks: what is empty or not finite, and labels counted."""

from typing import Any

import numpy as np
import pytest
import torch

from lockstep.runtime.recipe import Labels
from lockstep.runtime.scanning.build import leaves_of
from lockstep.runtime.scanning.checks import census, label_text, value_faults


def faults(sample: Any) -> list[tuple[str, str]]:
    return list(value_faults(list(leaves_of(sample))))


@pytest.mark.parametrize(
    "sample",
    [
        torch.zeros(2),
        torch.tensor([1, 2]),
        torch.tensor(True),
        torch.full((3, 70_000), 3e4, dtype=torch.float16),  # its sum does not fit into 16 bits
        torch.full((1000,), 3e38),  # nor this one into 32
        torch.eye(3).to_sparse(),
        torch.tensor([1 + 2j]),
        np.array([1.0, 2.0]),
        np.array(["a"]),
        np.float32(3),
        [1.0, 2.0],
        {"a": "text", "b": None, "c": 1.5, "d": object()},
    ],
)
def test_nothing_is_wrong(sample: Any) -> None:
    assert faults(sample) == []


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (torch.tensor([1.0, torch.nan]), "the sample: 1 NaN of 2 values, the first at 1"),
        ({"a": torch.tensor([[1.0, 2.0], [torch.inf, -torch.inf]])}, "a: 2 infinite of 4 values, the first at (1, 0)"),
        (torch.tensor(torch.nan), "the sample: NaN"),
        (torch.tensor([torch.nan], dtype=torch.bfloat16), "the sample: 1 NaN of 1 values, the first at 0"),
        (torch.tensor([0.0, torch.nan]).to_sparse(), "the sample: 1 NaN of 1 values, the first at 0"),
        (np.array([np.inf, np.nan]), "the sample: 1 NaN and 1 infinite of 2 values, the first at 0"),
        (np.array([1, complex(0, np.inf)]), "the sample: 1 infinite of 2 values, the first at 1"),
        ([1.0, float("nan")], "the sample: 1 NaN of 2 values, the first at 1"),
        (float("-inf"), "the sample: -inf"),
    ],
)
def test_not_finite(sample: Any, text: str) -> None:
    assert faults(sample) == [("nonfinite", text)]


@pytest.mark.parametrize("sample", [torch.zeros(0), np.zeros((2, 0)), "", b"", [], {}, {"a": torch.zeros(3, 0)}])
def test_empty(sample: Any) -> None:
    assert [kind for kind, _ in faults(sample)] == ["empty"]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.int16, torch.float32])
def test_labels_are_counted(dtype: torch.dtype) -> None:
    found = census(Labels(torch.tensor([[0, 1, 1], [2, 255, 255]]).to(dtype), 3, 255))
    assert found.counts.tolist() == [1, 2, 1]
    assert (found.ignored, found.wrong) == (2, ())


def test_wrong_labels_most_frequent_first() -> None:
    labels = Labels(torch.tensor([3, -1, 3, 0, 70_000, 255]), 3, 255)
    found = census(labels)
    assert found.wrong == ((3, 2), (-1, 1), (70_000, 1))
    assert label_text(found, labels) == "3 (2 of 6), -1 (1 of 6), 70000 (1 of 6); allowed: 0 .. 2, or 255 (ignored)"


def test_one_label_and_many_wrong_ones() -> None:
    labels = Labels(torch.tensor([7]), 3)
    assert label_text(census(labels), labels) == "7; allowed: 0 .. 2"
    labels = Labels(torch.arange(10), 2)
    assert "and 4 other values" in label_text(census(labels), labels)


def test_small_types_do_not_wrap() -> None:
    found = census(Labels(torch.arange(256).to(torch.uint8), 256))
    assert found.counts.sum() == 256
    assert found.wrong == ()


def test_labels_that_are_no_whole_numbers_or_none() -> None:
    assert census(Labels(torch.tensor([torch.nan, 1.0]), 3)).wrong[0][1] == 1
    assert census(Labels(torch.tensor([]), 3)).counts.tolist() == [0, 0, 0]
    assert census(Labels(torch.tensor([True, False]), 2)).counts.tolist() == [1, 1]


def test_an_ignored_class() -> None:
    found = census(Labels(torch.tensor([0, 0, 1]), 2, 0))
    assert (found.counts.tolist(), found.ignored, found.wrong) == ([0, 1], 2, ())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_parts_of_a_nested_tensor() -> None:
    good = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)])
    bad = torch.nested.nested_tensor([torch.ones(3), torch.tensor([1.0, torch.nan])])
    assert list(value_faults([("x", good)])) == []
    assert list(value_faults([("x", bad)])) == [("nonfinite", "x: 1 NaN of 2 values, the first at 1")]
