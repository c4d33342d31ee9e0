"""Weights between a model and a file: clean names, contiguous host copies, ties by name."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


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


def host_copy(value: Any, old: Any = None) -> Any:
    """A nested value with every tensor copied to host memory, so that training may go on while it is written.

    Args:
        value: tensors in mappings, lists and tuples.
        old: an earlier copy of the same structure whose memory may be overwritten: most of the time of a copy goes
            into memory that is touched for the first time.
    """
    if isinstance(value, Tensor):
        if isinstance(old, Tensor) and (old.shape, old.dtype) == (value.shape, value.dtype):
            return old.copy_(value.detach())
        return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    if isinstance(value, Mapping):
        earlier = old if isinstance(old, Mapping) else {}
        return {key: host_copy(item, earlier.get(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = old if isinstance(old, list | tuple) and len(old) == len(value) else [None] * len(value)
        return type(value)(host_copy(item, other) for item, other in zip(value, items, strict=True))
    return value


def whole(value: Tensor) -> Tensor:
    """All of a tensor; where it is split among the ranks, all of them call it together."""
    return value.full_tensor().detach() if isinstance(value, DTensor) else value.detach()


def weights_of(
    model: nn.Module,
    old: Mapping[str, Tensor] | None = None,
    keep: bool = True,
    instead: Mapping[int, Tensor] | None = None,
) -> tuple[dict[str, Tensor], dict[str, str], dict[str, Any]]:
    """A model's state as (tensors by clean name, ties, the rest).

    A tensor that has several names (tied weights) is copied once, under its first; `ties` maps the others to it.
    The rest is extra state that is no tensor. Where parameters are split among the ranks, all call it together.

    Args:
        model: the unwrapped model.
        old: an earlier copy whose memory may be overwritten.
        keep: False for a rank that only helps the others to theirs: it gets no tensors.
        instead: by the id of a parameter, what is copied in its place.
    """
    earlier = old or {}
    tensors: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    rest: dict[str, Any] = {}
    first: dict[Any, str] = {}
    state = model.state_dict(keep_vars=True)
    names = clean_names(state)
    for raw, value in state.items():
        name = names[raw]
        if not isinstance(value, Tensor):
            rest[name] = host_copy(value)
            continue
        owner = first.setdefault(_identity(value), name) if value.numel() else name
        if owner != name:
            ties[name] = owner
        elif keep or isinstance(value, DTensor):
            complete = whole((instead or {}).get(id(value), value))
            if keep:
                tensors[name] = host_copy(complete, earlier.get(name))
    return tensors, ties, rest


def extra_state(model: nn.Module) -> dict[str, Any]:
    """What the modules' own `get_extra_state` gives, as far as it is no tensor."""
    state = model.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if not isinstance(value, Tensor)}


def _identity(value: Tensor) -> Any:
    """Equal for two names of one tensor."""
    return id(value) if isinstance(value, DTensor) else (value.data_ptr(), value.shape, value.stride(), value.dtype)


def with_ties(tensors: Mapping[str, Tensor], ties: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors under all their names; what is stored under a name of its own stays."""
    return {**{name: tensors[owner] for name, owner in ties.items() if owner in tensors}, **tensors}


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the names and bytes of all tensors: equal digests, bit-identical weights.

    Where any is split among the ranks, all call it together.
    """
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(whole(tensors[name]).cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
