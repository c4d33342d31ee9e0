"""Weights travel under clean names, contiguous, each tied tensor once."""

import torch
from torch import nn

from lockstep.runtime.state.tensors import (
    clean_name,
    clean_names,
    host_copy,
    tensors_digest,
    weights_of,
    with_ties,
)


class Tied(nn.Module):
    """A head that shares the weight of an embedding, a buffer without elements, state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("none", torch.zeros(0))
        self.register_buffer("nothing", torch.zeros(0))
        self.seen: dict[str, list[int]] = {"ids": [1]}

    def get_extra_state(self) -> dict[str, list[int]]:
        return self.seen

    def set_extra_state(self, state: dict[str, list[int]]) -> None:
        self.seen = state


def test_wrappers_leave_no_name_behind() -> None:
    for raw in ("a.weight", "module.a.weight", "_orig_mod.a.weight", "module._orig_mod.module.a._orig_mod.weight"):
        assert clean_name(raw) == "a.weight"
    assert clean_name("encoder.module.weight") == "encoder.module.weight"


def test_names_that_would_become_one_stay_apart() -> None:
    assert clean_names(["module.w", "b"]) == {"module.w": "w", "b": "b"}
    assert clean_names(["module.w", "w"]) == {"module.w": "module.w", "w": "w"}


def test_a_host_copy_is_contiguous_and_its_own() -> None:
    image = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    value = {"a": [image, (image[0], 1)], "b": "text", "c": None}
    copy = host_copy(value)
    assert torch.equal(copy["a"][0], image)
    assert copy["a"][0].is_contiguous()
    before = copy["a"][1][0].clone()
    image.zero_()
    assert torch.equal(copy["a"][1][0], before)
    assert (copy["a"][1][1], copy["b"], copy["c"]) == (1, "text", None)


def test_a_tied_tensor_is_copied_once_and_found_under_all_its_names() -> None:
    model = Tied()
    tensors, ties, rest = weights_of(model)
    assert set(tensors) == {"embed.weight", "none", "nothing"}
    assert ties == {"head.weight": "embed.weight"}
    assert rest == {"_extra_state": {"ids": [1]}}
    assert torch.equal(with_ties(tensors, ties)["head.weight"], model.head.weight)


def test_a_copy_does_not_follow_the_model() -> None:
    model = Tied()
    tensors, _, rest = weights_of(model)
    before = tensors["embed.weight"].clone()
    nn.init.zeros_(model.embed.weight)
    model.seen["ids"].append(2)
    assert torch.equal(tensors["embed.weight"], before)
    assert rest == {"_extra_state": {"ids": [1]}}


def test_views_of_one_storage_that_differ_are_no_ties() -> None:
    model = nn.Module()
    both = torch.arange(6.0)
    model.register_buffer("all", both)
    model.register_buffer("first", both[:3])
    model.register_buffer("square", both.view(2, 3))
    tensors, ties, _ = weights_of(model)
    assert set(tensors) == {"all", "first", "square"} and not ties


def test_the_names_of_a_compiled_and_of_a_wrapped_model_are_clean() -> None:
    inner = nn.Linear(2, 2)
    assert set(weights_of(nn.ModuleDict({"module": inner}))[0]) == {"weight", "bias"}
    assert set(weights_of(nn.ModuleDict({"a": nn.ModuleDict({"_orig_mod": inner})}))[0]) == {"a.weight", "a.bias"}


def test_a_digest_depends_on_bits_and_names_alone() -> None:
    weight = torch.rand(2, 3, 4, 4)
    same = {"b": weight.to(memory_format=torch.channels_last), "a": torch.tensor(1)}
    assert tensors_digest({"a": torch.tensor(1), "b": weight}) == tensors_digest(same)
    assert tensors_digest({"a": torch.tensor(1), "c": weight}) != tensors_digest(same)
    changed = weight.clone()
    changed[0, 0, 0, 0] = torch.nextafter(changed[0, 0, 0, 0], torch.tensor(2.0))
    assert tensors_digest({"a": torch.tensor(1), "b": changed}) != tensors_digest(same)


def test_a_copy_reuses_the_memory_of_an_earlier_one_where_it_fits() -> None:
    value = {"a": torch.arange(4.0), "b": [torch.ones(2), 3], "c": torch.zeros(1)}
    first = host_copy(value)
    old = {**first, "c": torch.zeros(2), "gone": torch.zeros(1)}
    value["a"] += 1
    again = host_copy(value, old)
    assert again["a"] is first["a"]
    assert again["b"][0] is first["b"][0]
    assert again["c"] is not old["c"]
    assert again["a"].tolist() == [1, 2, 3, 4]
    assert again["b"][1] == 3
    assert "gone" not in again
