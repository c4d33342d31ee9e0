"""Loading weights into a model from our checkpoints and from foreign files; a misfit is explained key by key."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.state.fellows import fitted
from lockstep.runtime.state.mismatch import explanation, fit, misfit
from lockstep.runtime.state.tensors import clean_names, with_ties

TIES = "ties"


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint of any kind (`lockstep ckpt show` lists it), by the names they have there.

    Raises:
        UserError: where it is missing, damaged, of no known kind, or asks to run code.
    """
    if path.suffix == ".safetensors" and path.is_file():
        return _read_safetensors(path)
    from lockstep.runtime.foreign.take import weights_from  # it reads our checkpoints too, which need this module

    return weights_from(path)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            ties = _ties((file.metadata() or {}).get(TIES, "{}"))
            return with_ties({name: file.get_tensor(name) for name in file.keys()}, ties)  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(explain(f"{path} cannot be read: {error}", "a whole .safetensors file", "init_from")) from None


def _ties(text: str) -> dict[str, str]:
    """Further names of tied weights, as `checkpoint.write` notes them."""
    ties = json.loads(text)
    if not isinstance(ties, dict) or not all(isinstance(owner, str) for owner in ties.values()):
        raise ValueError(f"its metadata has `{TIES}` that are no mapping of names")
    return ties


def load_weights(
    model: nn.Module, tensors: Mapping[str, Tensor], source: str, extra: Mapping[str, Any] | None = None
) -> None:
    """Load every weight of a model.

    Names are tried as they are, then without `module.` and its like, then without a first part that all share.

    Args:
        model: the unwrapped model.
        tensors: weights by name.
        source: where they come from, for messages.
        extra: extra state that is no tensor.

    Raises:
        UserError: where a key is missing, too many, or of another shape.
    """
    state = model.state_dict()
    raw_of = {clean: raw for raw, clean in clean_names(state).items()}
    own = {raw: value for raw, value in state.items() if isinstance(value, Tensor)}
    names = {clean: raw for clean, raw in raw_of.items() if raw in own}
    theirs = fit(tensors, names)
    found = {theirs[name]: value for name, value in tensors.items()}
    shapes = {name: tuple(value.shape) for name, value in found.items()}
    wanted = {name: tuple(own[raw].shape) for name, raw in names.items()}
    if misfit(shapes, wanted):
        raise UserError(explanation(source, shapes, wanted))
    rest = {raw: value for raw, value in state.items() if raw not in own}
    rest |= {raw_of[name]: value for name, value in (extra or {}).items() if name in raw_of}
    fitting = {names[name]: fitted(value, own[names[name]]) for name, value in found.items()}
    model.load_state_dict(fitting | rest)
