"""A sample is read under its own stream; what is wrong with it is named."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lockstep.core.errors import UserError
from lockstep.runtime.data.broken import Broken
from lockstep.runtime.data.samples import Collate, Fetched, KeyedDataset, wrong_label
from lockstep.runtime.recipe import Labels
from tests.runtime.data.sources import Noisy, Task

KEYS = [(0, 3), (0, 1), (0, 7)]


def draws(keys: list[tuple[int, int]], seed: int = 0, stream: str = "train") -> list[list[float]]:
    fetched = KeyedDataset(Noisy(10), seed, stream).__getitems__(keys)
    assert isinstance(fetched, Fetched)
    assert fetched.keys == keys
    return [sample["draws"].tolist() for sample in fetched.samples]


def test_augmentation_is_a_function_of_seed_epoch_and_index() -> None:
    torch.manual_seed(1)
    first = draws(KEYS)
    torch.manual_seed(2)
    np.random.seed(2)
    random.seed(2)
    assert draws(KEYS) == first
    assert draws(KEYS[::-1]) == first[::-1]  # nor of what was read before
    assert draws([KEYS[1]]) == [first[1]]
    others = [draws(KEYS, seed=1), draws([(1, index) for _, index in KEYS]), draws(KEYS, stream="val")]
    numbers = [number for made in [first, *others] for sample in made for number in sample]
    assert len(set(numbers)) == len(numbers)


def test_reading_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    draws(KEYS)
    KeyedDataset(Noisy(10, raises=1), 0, "train").__getitems__(KEYS)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]  # type: ignore[index]


def test_a_sample_that_raises_is_named() -> None:
    broken = KeyedDataset(Noisy(10, raises=1), 0, "val").__getitems__([(4, 3), (4, 1)])
    assert isinstance(broken, Broken)
    assert "reading val sample 1 raised OSError: cannot read image.png" in broken.message
    assert "epoch 4" in broken.message
    assert "sources.py" in broken.message


class Explains(Noisy):
    def __getitem__(self, index: int) -> dict[str, Tensor]:
        raise UserError("the folder has no images")


def test_an_explained_error_of_the_data_set_is_the_users() -> None:
    assert KeyedDataset(Explains(3), 0, "train").__getitems__([(0, 0)]) == Broken("the folder has no images", True)


def collated(task: Task, label: int | list[int], index: int = 1) -> Any:
    fetched = KeyedDataset(Noisy(10, label=(index, label)), 0, "train").__getitems__(KEYS)  # type: ignore[arg-type]
    return Collate(task, "train")(fetched)


def test_right_labels_pass_and_the_ignored_one() -> None:
    assert collated(Task(), 2)["y"].tolist() == [0, 2, 1]
    assert collated(Task(), 255)["y"].tolist() == [0, 255, 1]


@pytest.mark.parametrize("label", [3, -1, 254, 10**12])
def test_a_wrong_label_is_named_by_sample_and_value(label: int) -> None:
    broken = collated(Task(), label)
    assert isinstance(broken, Broken)
    assert broken.misuse
    assert f"label {label} is outside the classes" in broken.message
    assert "0 .. 2, or 255 (ignored)" in broken.message
    assert "train sample 1, epoch 0" in broken.message


def test_an_error_in_transit_passes_through() -> None:
    broken = Broken("x", False)
    assert Collate(Task(), "train")(broken) is broken


class Ragged(Task):
    """Joins the labels of all samples, as a collate of boxes or points does."""

    def collate(self, samples: list[Any]) -> Any:
        return {"y": torch.cat([sample["y"].reshape(-1).repeat(4) for sample in samples])}


def test_rows_that_are_no_samples_name_all_samples() -> None:
    broken = collated(Ragged(), 9, index=7)
    assert isinstance(broken, Broken)
    assert "label 9" in broken.message
    assert "one of the samples 3, 1, 7" in broken.message


class Uncollatable(Task):
    def collate(self, samples: list[Any]) -> Any:
        return torch.stack([torch.zeros(int(sample["index"])) for sample in samples])


class Unlabelled(Task):
    def labels(self, batch: Any) -> Labels | None:
        raise KeyError("mask")


class Unchecked(Task):
    def labels(self, batch: Any) -> Labels | None:
        return None


@pytest.mark.parametrize(("task", "raised"), [(Uncollatable(), "RuntimeError"), (Unlabelled(), "KeyError: 'mask'")])
def test_samples_that_make_no_batch_are_named(task: Task, raised: str) -> None:
    broken = collated(task, 0)
    assert isinstance(broken, Broken)
    assert f"making a batch of train samples 3, 1, 7 raised {raised}" in broken.message


def test_without_labels_nothing_is_checked() -> None:
    assert collated(Unchecked(), 99)["y"].tolist() == [0, 99, 1]


DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_labels_of_every_integer_type(dtype: torch.dtype) -> None:
    values = torch.tensor([[0, 1], [2, 100], [1, 1]], dtype=dtype)
    assert wrong_label(Labels(values, 3, 100)) is None
    assert wrong_label(Labels(values, 3, -100)) == (1, 100)
    assert wrong_label(Labels(values, 3)) == (1, 100)
    assert wrong_label(Labels(values, 101)) is None
    assert wrong_label(Labels(values, 256)) is None  # a number that uint8 has not
    assert wrong_label(Labels(values, 70000, 2**40)) is None


def test_labels_that_are_no_integers() -> None:
    assert wrong_label(Labels(torch.tensor([True, False]), 2)) is None
    assert wrong_label(Labels(torch.tensor([0.0, 2.0]), 2)) == (1, 2)
    assert wrong_label(Labels(torch.zeros(0, 4, dtype=torch.int64), 2)) is None


def test_the_first_of_several_is_named() -> None:
    values = torch.tensor([[[0, 1]], [[1, 7]], [[9, 0]]])
    assert wrong_label(Labels(values, 2)) == (1, 7)


def test_a_recipe_without_wishes_collates_as_torch_and_checks_nothing() -> None:
    class Plain(Task):
        def labels(self, batch: Any) -> Labels | None:
            return super(Task, self).labels(batch)

    task = Plain()
    assert task.val_data() is None
    assert task.counts({}) is None
    assert (task.metrics(), task.floors()) == ({}, {})
    assert task.labels({}) is None
    assert task.collate([{"a": 1}, {"a": 2}])["a"].tolist() == [1, 2]
