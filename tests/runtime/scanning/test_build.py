"""What counts as another build of a sample, and what does not."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from lockstep.runtime.scanning.build import Build, batch_kind, build_of, leaves_of, num_bytes, shape_text


def build(sample: Any) -> Build:
    return build_of(list(leaves_of(sample)))


Point = namedtuple("Point", ["x", "y"])


@dataclass
class Box:
    corners: torch.Tensor
    name: str


def test_paths_of_a_nested_sample() -> None:
    sample = {"b": (torch.zeros(2), [Box(torch.zeros(4), "cat")]), "a": Point(1, None)}
    assert build(sample).leaves == (
        ("a.x", "int"),
        ("a.y", "NoneType"),
        ("b[0]", "float32 tensor"),
        ("b[1][0].corners", "float32 tensor"),
        ("b[1][0].name", "str"),
    )
    assert build(torch.zeros(3, 4)) == Build((("", "float32 tensor"),), ((3, 4),))


def test_the_order_of_keys_and_the_length_of_a_text_are_of_no_matter() -> None:
    assert build({"a": 1, "b": "x"}) == build({"b": "longer", "a": 2})
    assert build(np.array(["a"])) == build(np.array(["longer"]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2), np.zeros(2, np.float32)),
        (torch.zeros(1), torch.zeros(())),
        ({"a": 1}, {"a": 1, "b": 1}),
        ([1, 2], [1, 2, 3]),
        ([1, 2], [1, 2.0]),
        (None, 0),
        (np.int64(1), np.float32(1)),
    ],
)
def test_different_builds(one: Any, other: Any) -> None:
    assert build(one) != build(other)


def test_a_list_of_numbers_is_one_leaf_and_a_pair_is_two() -> None:
    assert build(list(range(1000))).shapes == ((1000,),)
    assert len(build((1, 2)).leaves) == 2


def test_bytes() -> None:
    picture = pytest.importorskip("PIL.Image").new("RGB", (4, 5))
    sample = {"a": torch.zeros(3, dtype=torch.int16), "b": np.zeros(2), "c": "abc", "d": 1.0, "e": picture, "f": None}
    assert num_bytes(list(leaves_of(sample))) == 6 + 16 + 3 + 8 + 60
    assert build(picture) == Build((("", "RGB picture"),), ((5, 4),))


def test_the_kind_of_a_batch_leaves_sizes_out() -> None:
    assert batch_kind({"a": torch.zeros(2, 3)}) == batch_kind({"a": torch.zeros(5, 1)})
    assert batch_kind({"a": torch.zeros(2, 3)}) != batch_kind({"a": torch.zeros(2)})
    assert batch_kind([torch.zeros(2)] * 3) == batch_kind([torch.zeros(1)])
    assert batch_kind([torch.zeros(2), torch.zeros(2).int()]) != batch_kind([torch.zeros(2)])
    assert batch_kind((torch.zeros(2), 1)) != batch_kind((1, torch.zeros(2)))


def test_shapes_in_words() -> None:
    assert [shape_text(shape) for shape in ((3, 4), (), None)] == ["3 x 4", "a single value", "without a shape"]


def test_a_sample_that_holds_itself_or_is_nested_too_deep() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ValueError, match="holds itself"):
        build({"x": ring})
    twice = {"a": [torch.zeros(1)]}
    assert len(build([twice, twice]).leaves) == 2
    deep: list[Any] = [None]
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(RecursionError):
        build(deep)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_have_a_build_without_a_shape() -> None:
    one, other = (torch.nested.nested_tensor([torch.ones(3), torch.ones(n)]) for n in (2, 4))
    assert build(one) == build(other) == Build((("", "nested float32 tensor"),), (None,))
