"""State dicts are found wherever they lie, and the one with the weights is told from the rest."""

import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.runtime.foreign.placeholder import Foreign
from lockstep.runtime.foreign.torch_file import read_torch_file
from lockstep.runtime.foreign.tree import flat, groups_of, is_optimizer, is_training_state, weights_group
from lockstep.runtime.foreign.window import DamagedFileError, Window
from tests.runtime.foreign.samples import net, trained, under


def torch_bytes(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def root_of(value: Any) -> Any:
    return read_torch_file(Window.of(torch_bytes(value))).root


def found(value: Any) -> tuple[dict[str, list[str]], str | None]:
    groups = groups_of(root_of(value))
    return {name: list(group) for name, group in groups.items()}, weights_group(groups)


NAMES = list(net().state_dict())
A = torch.ones(1)


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict", "net", "anything"])
def test_one_state_dict_under_any_key(key: str) -> None:
    groups, weights = found({key: net().state_dict(), "optimizer": trained()[1].state_dict(), "epoch": 3})
    assert weights == key and groups[key] == NAMES and "optimizer" in groups


def test_a_bare_state_dict_may_hold_any_names() -> None:
    assert found(net().state_dict()) == ({"": NAMES}, "")
    state = {"model.weight": A, "optimizer.weight": A}
    assert found(state) == ({"": list(state)}, "")


def test_nested_deep_and_in_parts() -> None:
    assert found({"state": {"model": {"a": A}, "optim": trained()[1].state_dict()}})[1] == "state.model"
    assert found({"model": {"encoder": {"w": A}, "head": {"w": A}}}) == ({"model": ["encoder.w", "head.w"]}, "model")
    assert found({"generator": {"w": A}, "discriminator": {"w": A}})[1] is None
    assert found({"model": {"w": A}, "model_ema": {"w": A}, "loss": A})[1] == "model"


def test_a_module_that_was_pickled_whole_has_the_names_of_its_state_dict() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight
            self.register_buffer("kept", torch.ones(2))
            self.register_buffer("not_kept", torch.ones(2), persistent=False)

    model = net()
    assert found(model) == ({"": NAMES}, "")
    assert found({"model": model, "epoch": 1}) == ({"model": NAMES}, "model")
    globals()["Tied"] = Tied
    Tied.__qualname__ = "Tied"
    assert found(Tied())[0][""] == ["kept", "a.weight", "b.weight"]


def test_lists_and_what_belongs_to_the_training() -> None:
    groups, weights = found({"optimizer_states": [trained()[1].state_dict()], "state_dict": under("model.", net())})
    assert weights == "state_dict" and groups["optimizer_states"][0] == "0.state.0.step"
    assert [is_training_state(name) for name in ("optimizer", "rng_state", "lr_schedulers", "model", "ema")] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert found(A) == ({}, None) and found({"epoch": 1}) == ({}, None)


def test_a_structure_without_end_is_refused() -> None:
    endless: dict[str, Any] = {"a": A}
    endless["self"] = endless
    assert [name for name, _ in flat(root_of(endless))] == ["a"]
    bomb: Any = {"a": 1}
    for _ in range(30):
        bomb = {"l": bomb, "r": bomb}
    with pytest.raises(DamagedFileError, match="without end"):
        list(flat(read_torch_file(Window.of(pickle.dumps(bomb))).root))


def test_a_key_without_end_is_not_written_out() -> None:
    key: Any = [0]
    for _ in range(40):
        key = [key, key]
    value = Foreign()
    value[key] = value[10**5000] = read_torch_file(Window.of(torch_bytes(A))).root
    assert [name for name, _ in flat(value)] == ["<list>", "<a number of 16610 bits>"]
    assert list(groups_of(value)[""]) == ["<list>", "<a number of 16610 bits>"]


@pytest.mark.parametrize("odd", [5, "text", [["a"]], {"a": 1}, None])
def test_parts_of_a_module_or_an_optimizer_that_are_none(odd: Any) -> None:
    module = Foreign()
    tensor = read_torch_file(Window.of(torch_bytes(A))).root
    module.state = {
        "_parameters": {},
        "_modules": {},
        "_buffers": {"a": tensor},
        "_non_persistent_buffers_set": odd,
    }
    assert list(groups_of(module)[""]) == ["a"]
    assert isinstance(odd, list) or not is_optimizer({"state": {}, "param_groups": odd})
    assert isinstance(odd, dict) or not is_optimizer({"state": odd, "param_groups": []})
