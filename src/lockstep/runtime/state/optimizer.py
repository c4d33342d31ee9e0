"""The state of an optimizer between its parameters and a checkpoint, whole or in shards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.runtime.state.fellows import Fellows, fitted, load_shards
from lockstep.runtime.state.tensors import clean_names


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """The parameters in the order that the optimizer's state dict numbers them."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def names_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The clean name of each parameter of an optimizer; its number where it is none of the model's."""
    own = dict(model.named_parameters())
    clean = clean_names(own)
    named = {id(param): clean[name] for name, param in own.items()}
    return [named.get(id(param), str(i)) for i, param in enumerate(parameters_of(optimizer))]


def split_state(
    optimizer: torch.optim.Optimizer, names: list[str], fellows: Fellows | None, old: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, DTensor]]:
    """The state dict without what is sharded, and the host copies of this rank's shards by name.

    Args:
        optimizer: its state is copied by whoever needs the first part.
        names: of its parameters.
        fellows: needed where anything is sharded.
        old: an earlier copy of the shards whose memory may be overwritten.
    """
    saved = optimizer.state_dict()
    rest: dict[int, dict[str, Any]] = {}
    shards: dict[str, DTensor] = {}
    for number, state in saved["state"].items():
        rest[number] = {}
        for key, value in state.items():
            if isinstance(value, DTensor):
                assert fellows is not None
                name = shard_name(names[number], key)
                shards[name] = fellows.host_shard(value, old.get(name))
            else:
                rest[number][key] = value
    return {"state": rest, "param_groups": saved["param_groups"]}, shards


def shard_name(param: str, key: str) -> str:
    """The name of a sharded tensor of the optimizer in a checkpoint."""
    return f"optimizer.{param}.{key}"


def described(shards: Mapping[str, DTensor]) -> dict[str, str]:
    """What a loader must know of the shards before it reads them: the type of each."""
    return {name: str(value.dtype).removeprefix("torch.") for name, value in shards.items()}


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, Any],
    shards: Mapping[str, str] | None = None,
    names: list[str] | None = None,
    folder: Path | None = None,
) -> None:
    """Load moments and counters; learning rate, weight decay and the like stay as this run's config says.

    Args:
        optimizer: of this run, over whole parameters or over shards.
        saved: the state dict of the same kind of optimizer, without what is sharded.
        shards: the type of each sharded tensor.
        names: of this optimizer's parameters, needed with shards.
        folder: where the shards are.

    Raises:
        ValueError: where the saved state is of another kind.
        KeyError: where a shard is missing.
    """
    own, theirs = optimizer.state_dict()["param_groups"], saved["param_groups"]
    if [group.keys() for group in own] != [group.keys() for group in theirs]:
        raise ValueError(f"it was saved with another optimizer than {type(optimizer).__name__}")
    groups = [{**mine, "params": its["params"]} for mine, its in zip(own, theirs, strict=True)]
    state = {number: dict(values) for number, values in saved["state"].items()}
    params = parameters_of(optimizer)
    if shards and names is not None and folder is not None:
        for number, values in _from_shards(params, names, shards, folder).items():
            state.setdefault(number, {}).update(values)
    for number, values in state.items():
        for key, value in values.items():
            whole = isinstance(value, Tensor) and not isinstance(value, DTensor)
            if whole and number < len(params) and value.shape == params[number].shape:
                values[key] = fitted(value, params[number])
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _from_shards(
    params: list[nn.Parameter], names: list[str], shards: Mapping[str, str], folder: Path
) -> dict[int, dict[str, Tensor]]:
    """This rank's part of the sharded state, by number of the parameter."""
    wanted: dict[str, Tensor] = {}
    found: dict[int, dict[str, Tensor]] = {}
    for number, (name, param) in enumerate(zip(names, params, strict=True)):
        prefix = shard_name(name, "")
        for key in (full.removeprefix(prefix) for full in shards if full.startswith(prefix)):
            if "." in key:
                continue  # of a parameter whose name begins with this one's
            full = prefix + key
            value = torch.empty_like(param.detach(), dtype=getattr(torch, shards[full]))
            wanted[full] = found.setdefault(number, {})[key] = value
    if missing := shards.keys() - wanted.keys():
        raise KeyError(f"state of parameters that this model has not: {', '.join(sorted(missing)[:4])}")
    load_shards(folder, wanted)
    return found


def match_layout(optimizer: torch.optim.Optimizer) -> None:
    """Lay out each state tensor as its parameter is: a fused kernel reads both in the order of memory."""
    for param, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == param.shape and value.stride() != param.stride():
                state[name] = torch.empty_like(param, dtype=value.dtype).copy_(value)
