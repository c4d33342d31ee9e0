"""The header of a safetensors file is held against the file."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lockstep.runtime.foreign.safetensors_file import looks_like_one, read_safetensors
from lockstep.runtime.foreign.window import DamagedFileError, Window


def made(header: Any, data: bytes) -> Window:
    text = json.dumps(header).encode()
    return Window.of(len(text).to_bytes(8, "little") + text + data)


def tensor(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_what_the_library_wrote_is_read(tmp_path: Path) -> None:
    values = {
        "größe": torch.arange(6.0).reshape(2, 3),
        "b": torch.ones(2, dtype=torch.bfloat16),
        "c": torch.tensor(True),
        "none": torch.zeros(0),
    }
    save_file(values, tmp_path / "a.safetensors", {"format": "pt", "ties": json.dumps({"d": "b"})})
    window = Window.of(tmp_path / "a.safetensors")
    found = read_safetensors(window).tensors
    assert looks_like_one(window) and found.keys() == {*values, "d"}
    assert all(torch.equal(found[name].load(), value) for name, value in values.items())
    assert found["d"].identity == found["b"].identity


@pytest.mark.parametrize(
    ("header", "data", "told"),
    [
        ({"a": tensor(0, 8, [2])}, bytes(7), "cut off"),
        ({"a": tensor(0, 8, [2])}, bytes(9), "1 bytes follow"),
        ({"a": tensor(0, 8, [3])}, bytes(8), "8 bytes for a tensor of shape"),
        ({"a": tensor(4, 12, [2])}, bytes(12), "begins at byte 4"),
        ({"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, bytes(12), "begins at byte 4"),
        ({"a": tensor(0, 8, [-1, -2])}, bytes(8), "its shape"),
        ({"a": tensor(0, 4, [True])}, bytes(4), "its shape"),
        ({"a": tensor(0, 0, [0, 10**30])}, b"", "its shape"),
        ({"a": tensor(0, 0, [0, 2**62, 2**62])}, b"", "a tensor of shape"),
        ({"a": tensor(0, 4, [1] * 65)}, bytes(4), "65 dimensions"),
        ({"a": tensor(0, 10**4000, [1])}, bytes(4), "its shape"),
        ({"a": tensor(0, 8, [2], "F99")}, bytes(8), "header cannot be read"),
        ([1], b"", "header cannot be read"),
        ({"a": 3}, b"", "header cannot be read"),
    ],
)
def test_a_contradiction_is_told(header: Any, data: bytes, told: str) -> None:
    with pytest.raises(DamagedFileError, match=told):
        read_safetensors(made(header, data))


def test_damage_never_gets_further_than_a_message(tmp_path: Path) -> None:
    save_file({"a": torch.ones(20), "b": torch.ones(3)}, tmp_path / "a.safetensors")
    whole, dice, told = (tmp_path / "a.safetensors").read_bytes(), random.Random(1), 0
    for _ in range(300):
        data = bytearray(whole)
        data[dice.randrange(130)] = dice.randrange(256)
        try:
            read_safetensors(Window.of(bytes(data[: dice.randrange(len(data))] if dice.random() < 0.3 else data)))
        except DamagedFileError:
            told += 1
    assert told > 150


def test_noted_ties_are_held_against_the_bytes(tmp_path: Path) -> None:
    apart = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 4.0]), "c": torch.tensor([3.0, 4.0])}
    save_file(apart, tmp_path / "w.safetensors", {"ties": json.dumps({"a": "b", "c": "b", "d": "b"})})
    found = read_safetensors(Window.of(tmp_path / "w.safetensors")).tensors
    assert found["a"] is not found["b"]
    assert found["c"] is found["d"] is found["b"]


@pytest.mark.parametrize("ties", [5, "5", "[" * 100_000, {"a": 1}, None])
def test_texts_of_the_header_that_are_none(ties: Any) -> None:
    found = read_safetensors(made({"__metadata__": {"ties": ties, "step": 5}, "a": tensor(0, 4, [1])}, bytes(4)))
    assert list(found.tensors) == ["a"] and found.metadata["step"] == "5"


def test_a_number_without_end_in_the_header() -> None:
    text = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, ' + b"9" * 5000 + b"]}}"
    with pytest.raises(DamagedFileError, match="header cannot be read"):
        read_safetensors(Window.of(len(text).to_bytes(8, "little") + text))
