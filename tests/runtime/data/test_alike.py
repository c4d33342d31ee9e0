"""Machines that read other data are refused at the start; what cannot be compared is left alone."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from lockstep.core.errors import UserError
from lockstep.runtime.data.alike import Print, check_alike
from lockstep.runtime.world import World
from tests.ranks import run_ranks


class Drawn(Dataset[Any]):
    """Samples with noise: of the sample's stream, or of the operating system's."""

    def __init__(self, own: bool) -> None:
        self.own = own

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> float:
        return random.SystemRandom().random() if self.own else random.random() + float(torch.rand(()))


class Unreadable(Drawn):
    def __getitem__(self, index: int) -> float:
        raise OSError("on this machine only")


def checked(kind: str) -> str:
    with World.enter(threads=1) as world:
        rows = torch.arange(12.0).reshape(6, 2)
        if kind == "differs" and world.rank == 1:
            rows[-1, 1] = 9.0
        data: Dataset[Any] = TensorDataset(rows)
        if kind in ("noise", "own noise"):
            data = Drawn(kind == "own noise")
        if kind == "unreadable" and world.rank == 1:
            data = Unreadable(True)
        torch.manual_seed(world.rank)
        before = torch.random.get_rng_state()
        try:
            check_alike({"train": TensorDataset(torch.zeros(3)), "val": data}, 0, world)
        except UserError as error:
            return str(error)
        assert torch.equal(before, torch.random.get_rng_state())
    return ""


def test_a_sample_that_differs_is_named_on_every_rank() -> None:
    said = run_ranks(checked, 2, "differs", ranks_per_node=1)
    assert said[0] == said[1]
    assert said[0].startswith(
        "sample 5 of the validation set is not the same on the machine of rank 1 as on that of rank 0"
    )


@pytest.mark.parametrize("kind", ["same", "noise", "own noise", "unreadable"])
def test_what_is_alike_or_cannot_be_compared_passes(kind: str) -> None:
    assert run_ranks(checked, 2, kind, ranks_per_node=1) == ["", ""]


def test_one_machine_reads_nothing() -> None:
    assert run_ranks(checked, 2, "differs") == ["", ""]


SAMPLES = [
    1,
    1.0,
    2.0,
    True,
    None,
    "1",
    b"1",
    (1,),
    [1],
    [1, 1],
    {"a": 1},
    {"b": 1},
    torch.ones(2),
    torch.ones(1, 2),
    torch.ones(2, dtype=torch.float64),
    torch.ones(2, dtype=torch.bfloat16),
    torch.ones(()),
    torch.tensor([1, 2]),
    torch.tensor([1, 3]),
    torch.tensor([True]),
    torch.arange(100, dtype=torch.uint8),
    torch.arange(100, dtype=torch.uint8).flip(0),
    np.ones(2),
    np.float64(1),
    np.ones(2, dtype=np.float32),
    (torch.ones(2), {"mask": np.zeros(3)}),
    torch.zeros(0),
]


def test_prints_tell_samples_apart() -> None:
    prints = [Print.of(one) for one in SAMPLES]
    for at, one in enumerate(prints):
        assert one is not None
        assert [other is not None and one.alike(other) for other in prints] == [
            at == there for there in range(len(prints))
        ]


def test_a_last_digit_is_no_difference_and_another_picture_is() -> None:
    rows = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))
    picture = (rows * 255).to(torch.uint8)
    other = (rows.flip(2) * 255).to(torch.uint8)
    jitter = picture.clone()
    jitter[:, ::7] ^= 1
    one, same, different = (Print.of(each) for each in (picture, jitter, torch.roll(other, 5, 1)))
    assert one is not None and same is not None and different is not None
    assert one != same and one.alike(same)
    shifted = Print.of((rows * 200).to(torch.uint8))
    assert shifted is not None and not one.alike(shifted)
    nan = Print.of(torch.tensor([float("nan")]))
    assert nan is not None and nan.alike(nan)


def test_folders_may_differ_and_names_may_not() -> None:
    one, same, other = (Print.of({"path": path}) for path in ("/a/x/1.png", "/b/1.png", "/a/x/2.png"))
    assert one == same != other


def test_the_layout_in_memory_is_no_difference() -> None:
    rows = torch.arange(6.0).reshape(2, 3)
    assert Print.of(rows.t()) == Print.of(rows.t().contiguous())


def test_what_is_unknown_has_no_print() -> None:
    for one in (object(), [1, object()], {"a": object()}, np.array([object()]), torch.ones(2).to_sparse()):
        assert Print.of(one) is None


def test_pictures_are_compared_by_their_pixels() -> None:
    image = pytest.importorskip("PIL.Image")
    one, other, same = (Print.of(image.new("L", (4, 4), value)) for value in (10, 20, 10))
    assert one is not None and other is not None
    assert one == same and not one.alike(other)
