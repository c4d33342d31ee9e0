"""What is in a batch, whatever it is made of."""

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch

from lockstep.trace import batches

Pair = namedtuple("Pair", ["image", "label"])


def _nested() -> dict[str, Any]:
    image = torch.arange(24.0).reshape(4, 6)
    return {"pair": Pair(image, torch.arange(4)), "names": ["a", "b", "c", "a"], "rest": [{"n": 3}, None]}


def test_everything_in_a_batch_has_a_path() -> None:
    assert [name for name, _ in batches.leaves(_nested())] == ["pair.0", "pair.1", "names", "rest.0.n", "rest.1"]
    assert list(batches.leaves(5)) == [("", 5)]


def test_the_size_is_that_of_the_first_tensor_with_a_dimension() -> None:
    assert batches.size_of([torch.tensor(1.0), torch.zeros(3, 2)]) == 3
    assert batches.size_of(_nested()) == 4
    for unknown in (None, object(), "text", torch.tensor(1), [], {}):
        assert batches.size_of(unknown) is None


def test_equal_samples_have_equal_digests() -> None:
    rows = batches.row_digests(_nested(), 4)
    assert sorted(rows) == ["names", "pair.0", "pair.1"]
    assert rows["names"][0] == rows["names"][3] != rows["names"][1]
    assert len(set(rows["pair.0"])) == 4
    again = batches.row_digests({"pair": Pair(_nested()["pair"].image[[2]], 0)}, 1)
    assert again["pair.0"][0] == rows["pair.0"][2], "wherever the sample lies in its batch"


def test_long_rows_are_sampled() -> None:
    for width in (64, 65, 127, 128, 1000):
        one = torch.zeros(2, width)
        one[1, 0] = 1
        rows = batches.row_digests(one, 2)[""]
        assert rows[0] != rows[1], width


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2, 3).to(torch.float8_e4m3fn),
        torch.ones(2, 3, dtype=torch.bfloat16),
        torch.ones(2, 3, dtype=torch.complex64).conj(),
        torch.ones(2, 3).to_sparse(),
        torch.zeros(2, 0),
        torch.ones(2, 3, requires_grad=True),
        torch.tensor([True, True]),
    ],
    ids=str,
)
def test_tensors_of_all_kinds_have_digests(value: torch.Tensor) -> None:
    (rows,) = batches.row_digests(value, batches.size_of(value)).values()
    assert len(rows) == 2 and rows[0] == rows[1]


def test_what_has_no_values_or_no_rows_has_none() -> None:
    for value in (torch.empty(2, 3, device="meta"), torch.tensor(1.0), torch.zeros(0, 3), object()):
        assert batches.row_digests(value, batches.size_of(value)) == {}


def test_rows_are_cut_out_of_everything_that_has_them() -> None:
    part = batches.cut(_nested(), 4, 1, 3)
    assert torch.equal(part["pair"].image, _nested()["pair"].image[1:3])
    assert type(part["pair"]) is Pair and part["names"] == ["b", "c"]
    assert part["rest"] == [{"n": 3}, None]


def test_what_was_cut_is_joined_again() -> None:
    whole = _nested()
    parts = [batches.cut(whole, 4, start, start + 2) for start in (0, 2)]
    joined = batches.joined(parts)
    assert torch.equal(joined["pair"].image, whole["pair"].image)
    assert joined["names"] == whole["names"] and type(joined["pair"]) is Pair
    assert batches.joined([torch.tensor(2.0), torch.tensor(2.0)]) == 2.0


def test_every_tensor_is_changed_and_containers_keep_their_types() -> None:
    given = OrderedDict(a=Pair(torch.ones(2), 1), b=(torch.ones(1),))
    made = batches.mapped(given, lambda one: one * 2)
    assert type(made) is OrderedDict and type(made["a"]) is Pair and type(made["b"]) is tuple
    assert made["a"].image.tolist() == [2, 2] and made["a"].label == 1 and made["b"][0].item() == 2
    assert given["a"].image.tolist() == [1, 1]


def test_only_floating_values_become_double() -> None:
    assert batches.as_double(torch.ones(1, dtype=torch.bfloat16)).dtype == torch.float64
    assert batches.as_double(torch.ones(1, dtype=torch.int32)).dtype == torch.int32
    assert batches.as_double(torch.ones(1, dtype=torch.complex64)).dtype == torch.complex64
