"""Every tensor of a batch moves, is cast where it is a floating one, and keeps its place."""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from lockstep.runtime.data.transfer import ahead, to_device

CPU = torch.device("cpu")


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


class Graph:
    """A batch that knows how to move."""

    def __init__(self) -> None:
        self.moved_to: torch.device | None = None

    def to(self, device: torch.device) -> "Graph":
        self.moved_to = device
        return self


def test_nested_batches_keep_their_shape() -> None:
    x, y = torch.rand(2, 3), torch.arange(2)
    graph = Graph()
    batch = {"a": [x, (y, "text", 3, None)], "b": Pair(x, y), "c": OrderedDict(d=x), "g": graph}
    moved = to_device(batch, CPU, torch.float64, False)
    assert moved["a"][0].dtype == torch.float64
    assert torch.equal(moved["a"][0], x.double())
    assert moved["a"][1][0] is not None
    assert moved["a"][1][1:] == ("text", 3, None)
    assert isinstance(moved["a"], list)
    assert isinstance(moved["b"], Pair)
    assert moved["b"].y.dtype == torch.int64
    assert list(moved["c"]) == ["d"]
    assert moved["g"] is graph
    assert graph.moved_to == CPU


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_tensors_are_cast_and_others_are_not(dtype: torch.dtype) -> None:
    kinds = [torch.int64, torch.uint8, torch.bool, torch.complex64]
    batch = [torch.zeros(2, dtype=dtype), *(torch.zeros(2, dtype=kind) for kind in kinds)]
    moved = to_device(batch, CPU, torch.float64, False)
    assert [one.dtype for one in moved] == [torch.float64, *kinds]
    assert [one.dtype for one in to_device(batch, CPU, None, False)] == [dtype, *kinds]


def test_images_alone_are_laid_out_with_channels_innermost() -> None:
    image, mask = torch.rand(2, 3, 4, 5), torch.zeros(2, 1, 4, 5, dtype=torch.int64)
    video = torch.rand(2, 3, 2, 4, 5)
    moved = to_device([image, mask, video], CPU, None, True)
    assert moved[0].is_contiguous(memory_format=torch.channels_last)
    assert not moved[0].is_contiguous()
    assert torch.equal(moved[0], image)
    assert moved[1].is_contiguous()
    assert moved[2].is_contiguous()
    assert to_device(image, CPU, None, False).is_contiguous()


def test_what_needs_nothing_is_not_copied() -> None:
    x = torch.rand(3)
    assert to_device(x, CPU, None, False) is x
    assert to_device(x, CPU, torch.float32, True) is x


def test_on_a_cpu_batches_come_one_by_one_and_on_time() -> None:
    made: list[int] = []

    def batches() -> Any:
        for i in range(3):
            made.append(i)
            yield {"x": torch.tensor([float(i)])}

    for i, (host, batch) in enumerate(ahead(batches(), CPU, torch.float64, False)):
        assert made == list(range(i + 1))
        assert host["x"].dtype == torch.float32
        assert (batch["x"].dtype, float(batch["x"])) == (torch.float64, i)
    assert made == [0, 1, 2]


def test_an_error_in_transit_is_handed_on() -> None:
    from lockstep.runtime.data.broken import Broken

    broken = Broken("x", False)
    assert list(ahead([broken], CPU, None, True)) == [(broken, broken)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_on_a_gpu_every_batch_arrives_whole_and_in_order(number: int) -> None:
    device = torch.device("cuda", 0)
    hosts = [{"x": torch.full((1000, 1000), float(i)).pin_memory(), "y": [torch.tensor(i)]} for i in range(number)]
    found = [(float(batch["x"].sum()), int(batch["y"][0])) for _, batch in ahead(hosts, device, None, False)]
    assert found == [(i * 1e6, i) for i in range(number)]


@dataclasses.dataclass(frozen=True)
class Fields:
    x: torch.Tensor
    name: str


def test_a_data_class_is_moved_field_by_field() -> None:
    moved = to_device(Fields(torch.ones(2), "a"), torch.device("cpu"), torch.float64, False)
    assert isinstance(moved, Fields)
    assert moved.x.dtype == torch.float64
    assert moved.name == "a"
