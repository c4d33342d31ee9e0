"""Weights between a model and a file: clean names, contiguous host copies, ties by name."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def clean_name(name: str) -> str:
    """A parameter's own name, without what wrappers put before it (`module.`) or into it (`_orig_mod.`)."""
    name = name.replace("_orig_mod.", "")
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def clean_names(names: Iterable[str]) -> dict[str, str]:
    """Each name's clean form; they keep what they have where two would become one."""
    names = list(names)
    cleaned = {name: clean_name(name) for name in names}
    return cleaned if len(set(cleaned.values())) == len(names) else {name: name for name in names}


def host_copy(value: Any) -> Any:
    """A nested value with every tensor copied to host memory, so that training may go on while it is written."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    if isinstance(value, Mapping):
        return {key: host_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(host_copy(item) for item in value)
    return value


def weights_of(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str], dict[str, Any]]:
    """A model's state as (tensors by clean name, ties, the rest).

    A tensor that has several names (tied weights) is copied once, under its first; `ties` maps the others to it.
    The rest is extra state that is no tensor.
    """
    tensors: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    rest: dict[str, Any] = {}
    first: dict[tuple[Any, ...], str] = {}
    state = model.state_dict()
    names = clean_names(state)
    for raw, value in state.items():
        name = names[raw]
        if not isinstance(value, Tensor):
            rest[name] = host_copy(value)
            continue
        identity = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        owner = first.setdefault(identity, name) if value.numel() else name
        if owner == name:
            tensors[name] = host_copy(value)
        else:
            ties[name] = owner
    return tensors, ties, rest


def with_ties(tensors: Mapping[str, Tensor], ties: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors under all their names."""
    return {**tensors, **{name: tensors[owner] for name, owner in ties.items() if owner in tensors}}


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the names and bytes of all tensors: equal digests, bit-identical weights."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
