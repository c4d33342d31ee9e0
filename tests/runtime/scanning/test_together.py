"""What a recipe's collate takes, and one sample as a batch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.build import batch_kind, leaves_of
from lockstep.runtime.scanning.together import batch_of_one, why_not_together
from tests.bad_samples import good


@pytest.mark.parametrize(
    "sample",
    [good(1), (torch.ones(2, 3), 4), [{"a": np.zeros((2, 2)), "b": "text"}, 1.5], torch.tensor(3), np.float32(2)],
)
def test_a_batch_of_one_is_that_of_torch(sample: Any) -> None:
    ours, theirs = batch_of_one(sample), default_collate([sample])
    assert batch_kind(ours) == batch_kind(theirs)
    pairs = zip(leaves_of(ours), leaves_of(theirs), strict=True)
    assert all(path == other and np.array_equal(one, two) for (path, one), (other, two) in pairs)


def test_stacking_takes_neither_shapes_nor_types() -> None:
    sample = good(0)
    assert why_not_together(Batching(), sample, good(1)) is None
    wider = {**sample, "image": torch.rand(3, 6, 7)}
    assert "stack expects each tensor to be equal size" in str(why_not_together(Batching(), sample, wider))
    # torch.stack makes floats of floats and bytes without a word.
    for dtype in (torch.uint8, torch.float64):
        other = {**sample, "image": sample["image"].to(dtype)}
        assert why_not_together(Batching(), sample, other) is not None


def test_padding_takes_lengths() -> None:
    class Padding(Batching):
        def collate(self, samples: list[Any]) -> Any:
            return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

    assert why_not_together(Padding(), torch.ones(3), torch.ones(9)) is None
    assert why_not_together(Padding(), torch.ones(3), torch.ones(9, 2)) is not None


def test_an_optional_part_that_collate_knows() -> None:
    class Optional(Batching):
        def collate(self, samples: list[Any]) -> Any:
            weights = torch.stack([sample.get("weight", torch.tensor(1.0)) for sample in samples])
            return {"image": torch.stack([sample["image"] for sample in samples]), "weight": weights}

    plain, weighted = good(0), {**good(0), "weight": torch.tensor(2.0)}
    assert why_not_together(Optional(), plain, weighted) is None
    assert why_not_together(Batching(), plain, weighted) is not None


def test_a_long_list_of_numbers_is_batched_as_torch_does() -> None:
    sample = {"ids": list(range(100)), "weights": [0.5] * 100, "mixed": [1, 0.5] * 50, "parts": [torch.ones(2)] * 3}
    mine, theirs = batch_of_one(sample), default_collate([sample])
    for key, values in theirs.items():
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(mine[key], values, strict=True))
