"""A pickle is data: nothing that it names is looked up, imported or called, and damage ends in a message."""

import pickle
import random
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.runtime.foreign.placeholder import Foreign
from lockstep.runtime.foreign.tensor_ref import TensorRef
from lockstep.runtime.foreign.torch_file import read_torch_file
from lockstep.runtime.foreign.unpickler import unpickle
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError, Window
from tests.runtime.foreign.samples import traps


def read(data: bytes) -> Any:
    return read_torch_file(Window.of(data)).root


@pytest.mark.parametrize("name", traps(Path("x")))
def test_no_trap_goes_off(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "exploded"
    data = traps(mark)[name]
    if name != "BUILD":
        made = pickle.loads(data)
        assert mark.exists()  # it is a trap indeed
        if hasattr(made, "close"):
            made.close()
        mark.unlink()
    try:
        read_torch_file(Window.of(data))
    except DamagedFileError:
        assert name == "BUILD"
    assert not mark.exists()


def test_nothing_is_imported() -> None:
    assert "antigravity" not in sys.modules and "this" not in sys.modules
    found = read_torch_file(Window.of(b"cthis\ns\n(tR."))
    assert found.origins == ["this.s"] and "this" not in sys.modules


def test_a_maker_of_ours_cannot_be_changed_by_a_file() -> None:
    build = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x04\x00\x00\x00evilK\x01sb."
    with pytest.raises(DamagedFileError, match="sets a state on a function"):
        read(build)
    with pytest.raises(DamagedFileError):
        read(b"\x80\x02N}X\x05\x00\x00\x00_makeK\x01s\x86ctorch\nSize\nq\x000h\x00N}X\x05\x00\x00\x00_makeK\x01s\x86b.")
    assert isinstance(read(torch_bytes({"a": torch.zeros(2)}))["a"], TensorRef)


def torch_bytes(value: Any, **options: Any) -> bytes:
    import io

    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


class Own:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, torch.ones(2)


class Bag(dict[str, int]):
    pass


@pytest.mark.parametrize("protocol", range(6))
def test_objects_of_others_become_data(protocol: int) -> None:
    value = {"own": Own() if protocol > 1 else None, "bag": Bag(x=1), "many": defaultdict(list, {"k": [1]}), "set": {3}}
    found = read(pickle.dumps(value, protocol))
    assert found["set"] == {3} or isinstance(found["set"], Foreign)
    assert found["bag"].origin.endswith(("Bag", "_reconstructor"))
    if protocol > 1:
        assert found["bag"].pairs == [("x", 1)] and found["many"].pairs == [("k", [1])]
        assert found["own"].attributes["a"] == 1 and isinstance(found["own"].attributes["b"], TensorRef)


def test_tensors_of_every_kind_keep_shape_type_and_values() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    values = OrderedDict(
        plain=base,
        view=base[1:, ::2],
        turned=base.t(),
        scalar=torch.tensor(3),
        empty=torch.zeros(0, 3),
        expanded=torch.ones(1).expand(5),
        param=nn.Parameter(torch.ones(2)),
        half=torch.ones(3, dtype=torch.bfloat16),
        small=torch.ones(3).to(torch.float8_e4m3fn),
        unsigned=torch.ones(3, dtype=torch.uint16),
        yes=torch.tensor([True, False]),
        turning=torch.ones(2, dtype=torch.complex64),
    )
    for old in (False, True):
        found = read(torch_bytes(values, _use_new_zipfile_serialization=not old))
        assert found.keys() == values.keys()
        for name, value in values.items():
            loaded = found[name].load()
            assert loaded.dtype == value.dtype and loaded.shape == value.shape, name
            assert torch.equal(loaded.to(torch.complex64), value.detach().to(torch.complex64)), name
    nested = read(pickle.dumps({"a": base}))
    assert torch.equal(nested["a"].load(), base)


def test_a_trap_for_the_memory_is_refused() -> None:
    with pytest.raises(DamagedFileError, match="places in memory"):
        read(b"\x80\x02K\x01r\xff\xff\xff\x7f.")
    with pytest.raises(DamagedFileError, match="memory for"):
        read(b"cbuiltins\nbytearray\n(I99999999999\ntR.")
    with pytest.raises(DamagedFileError, match="breaks off"):
        read(b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.")
    window = Window.of(b"\x80\x04N.")
    assert unpickle(window, {}, {}, lambda data: None) == (None, 4)


def test_a_tensor_beyond_its_storage_is_refused() -> None:
    data = bytearray(torch_bytes({"a": torch.zeros(4)}))
    at = data.index(b"K\x04\x85")
    data[at + 1] = 200
    with pytest.raises(DamagedFileError, match="in a storage of 4 elements"):
        read(bytes(data))


@pytest.mark.parametrize("old", [False, True])
def test_damage_is_told_and_never_more(old: bool) -> None:
    dice = random.Random(7)
    whole = torch_bytes(
        {"a": torch.arange(6.0), "b": [1, {"c": torch.ones(2)}]}, _use_new_zipfile_serialization=not old
    )
    told = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(min(len(data), 700))] = dice.randrange(256)
        try:
            read(bytes(data[: dice.randrange(len(data))] if dice.random() < 0.3 else data))
        except (DamagedFileError, NoCheckpointError):
            told += 1
    assert told > 100
