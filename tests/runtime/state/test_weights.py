"""Weights of any common file load into the model they fit, and a misfit is explained key by key."""

import pickle
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.runtime.state.checkpoint import Snapshot, read, write
from lockstep.runtime.state.tensors import weights_of
from lockstep.runtime.state.weights import load_weights, read_weights
from tests.runtime.state.test_tensors import Tied


def net(seed: int = 0, hidden: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, hidden, 3), nn.BatchNorm2d(hidden), nn.Conv2d(hidden, 2, 1))


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def prefixed(model: nn.Module, prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in model.state_dict().items()}


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("file", ["a.safetensors", "a.pt", "a.pth model", "a.pt state_dict", "a.pt model state_dict"])
def test_weights_load_whatever_wrapped_them(tmp_path: Path, file: str, prefix: str) -> None:
    name, *nested = file.split()
    source, path = net(1), tmp_path / name
    content: Any = prefixed(source, prefix)
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        for name in reversed(nested):
            content = {name: content, "epoch": 3, "optimizer": {"lr": 0.1, "betas": [torch.tensor(1.0)]}}
        torch.save(content, path)
    model = net(2)
    load_weights(model, read_weights(path), str(path))
    assert same(model, source)


def test_a_compiled_or_wrapped_model_takes_plain_names() -> None:
    source = net(1)
    for names in (["module"], ["_orig_mod"], ["_orig_mod", "module"]):
        wrapped = net(2)
        for name in names:
            wrapped = nn.ModuleDict({name: wrapped})
        load_weights(wrapped, source.state_dict(), "file")
        assert same(wrapped, source)
        load_weights(wrapped, net(3).state_dict(), "file", {})


def test_two_names_that_differ_by_a_wrapper_only_stay_apart() -> None:
    class Pair(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.module = nn.Linear(2, 2)
            self.weight = nn.Parameter(torch.randn(3))

    source, model = Pair(1), Pair(2)
    tensors, _, _ = weights_of(source)
    assert len(tensors) == 3
    load_weights(model, tensors, "file")
    assert same(model, source)


def through_checkpoint(source: nn.Module, model: nn.Module, folder: Path) -> None:
    tensors, ties, rest = weights_of(source)
    found = read(write(folder, Snapshot(1, tensors, ties, {"extra_state": rest}, {})))
    load_weights(model, found.tensors, "checkpoint", found.trainer["extra_state"])


def test_ties_and_state_that_is_no_tensor_come_back(tmp_path: Path) -> None:
    source, model = Tied(), Tied()
    source.seen = {"ids": [4, 5]}
    through_checkpoint(source, model, tmp_path)
    assert same_tensors(model, source)
    assert model.head.weight is model.embed.weight
    assert model.seen == {"ids": [4, 5]}


def same_tensors(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor))


def test_weights_alone_leave_other_state_as_it_is() -> None:
    source, model = Tied(), Tied()
    model.seen = {"ids": [9]}
    tensors = {name: value for name, value in source.state_dict().items() if isinstance(value, Tensor)}
    load_weights(model, tensors, "file")
    assert model.seen == {"ids": [9]}
    assert torch.equal(model.embed.weight, source.embed.weight)


def test_the_layout_in_memory_is_the_models_own(tmp_path: Path) -> None:
    source = net(1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = net(2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    strides = [value.stride() for value in model.state_dict().values()]
    through_checkpoint(source, model, tmp_path)
    assert same(model, source)
    assert [value.stride() for value in model.state_dict().values()] == strides


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.bool])
def test_every_type_survives(tmp_path: Path, dtype: torch.dtype) -> None:
    source, model = nn.Module(), nn.Module()
    source.register_buffer("x", torch.tensor([0, 1, 1, 0, 5]).to(dtype))
    model.register_buffer("x", torch.zeros(5, dtype=dtype))
    through_checkpoint(source, model, tmp_path)
    assert same(model, source)


def test_a_misfit_names_what_is_missing_surplus_and_of_another_shape() -> None:
    tensors = net(1, hidden=6).state_dict()
    tensors["head.weight"] = torch.zeros(1)
    del tensors["2.bias"]
    before = net(2)
    model = net(2)
    with pytest.raises(UserError) as caught:
        load_weights(model, tensors, "old.pt")
    text = str(caught.value)
    assert "old.pt is of another architecture: of the model's 9 tensors" in text
    assert "1 missing in the file (2.bias)" in text
    assert "1 not in the model (head.weight)" in text
    assert "0.weight: (6, 3, 3, 3) in the file, (4, 3, 3, 3) in the model" in text
    assert "... and 2 more" in text
    assert same(model, before)


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("make", ["torch", "torch, old format", "pickle"])
def test_code_in_a_file_is_never_run(tmp_path: Path, make: str) -> None:
    content = OrderedDict(net().state_dict(), bomb=Bomb(tmp_path / "exploded"))
    path = tmp_path / "weights.pt"
    if make == "pickle":
        path.write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=make == "torch")
    with pytest.raises(UserError, match=r"weights_only=True; code in a checkpoint is never run"):
        read_weights(path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_damaged_file_is_explained(tmp_path: Path, kind: str) -> None:
    path, dice = tmp_path / f"weights.{kind}", random.Random(0)
    if kind == "pt":
        torch.save(net().state_dict(), path)
    else:
        save_file(net().state_dict(), path)
    whole = path.read_bytes()
    pieces = [whole[: dice.randrange(len(whole))] for _ in range(20)]
    noise = [dice.randbytes(dice.randrange(1, 400)) for _ in range(40)]
    protocols = [pickle.dumps([1, "a"], protocol)[:-1] + dice.randbytes(9) for protocol in range(6)]
    for content in [b"", b"not a checkpoint\n", b"{}", whole[1:], *pieces, *noise, *protocols]:
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"cannot be read|holds no tensors"):
            read_weights(path)


@pytest.mark.parametrize("content", [{}, [], 3, torch.zeros(2), {"epoch": 1}, {"state_dict": {}}])
def test_a_file_without_named_tensors_is_explained(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(UserError, match="holds no tensors by name"):
        read_weights(tmp_path / "weights.pt")


@pytest.mark.parametrize("name", ["nowhere.pt", "nowhere.safetensors", "."])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"is not there|is an empty folder"):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("ties", ["[1]", "1", '{"a": [1]}', '{"a": null}', "{"])
def test_metadata_of_a_stranger_is_refused_in_words(tmp_path: Path, ties: str) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "odd.safetensors", {"ties": ties})
    with pytest.raises(UserError, match=r"cannot be read"):
        read_weights(tmp_path / "odd.safetensors")
