"""Loading weights into a model from our checkpoints and from foreign files; a misfit is explained key by key."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.state.tensors import clean_names, with_ties

TIES = "ties"
_NESTED = "model", "state_dict", "model_state_dict"


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` or `.pt` file, by the names they have there.

    Raises:
        UserError: where the file is missing, damaged, of no known kind, or asks to run code.
    """
    if not path.is_file():
        raise UserError(explain(f"{path} is not a file", "a .safetensors or .pt file with weights", "init_from"))
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a damaged pickle raises is anybody's guess
        text = (str(error) or type(error).__name__).splitlines()[0]
        must = "plain tensors, loadable with weights_only=True; code in a checkpoint is never run"
        raise UserError(
            explain(f"{path} cannot be read: {text}", must, "init_from", "save model.state_dict() alone")
        ) from None
    return _state_dict(content, path)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            ties = json.loads((file.metadata() or {}).get(TIES, "{}"))
            return with_ties({name: file.get_tensor(name) for name in file.keys()}, ties)  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(explain(f"{path} cannot be read: {error}", "a whole .safetensors file", "init_from")) from None


def _state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    for name in _NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        must = f"a state dict, or one under {', '.join(_NESTED)}"
        raise UserError(explain(f"{path} holds no tensors by name", must, "init_from"))
    return tensors


def load_weights(
    model: nn.Module, tensors: Mapping[str, Tensor], source: str, extra: Mapping[str, Any] | None = None
) -> None:
    """Load every weight of a model.

    Names are tried as they are, then without `module.` and `_orig_mod.`.

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
    theirs = clean_names(tensors) if tensors.keys() != names.keys() else {name: name for name in tensors}
    found = {theirs[name]: value for name, value in tensors.items()}
    missing = [name for name in names if name not in found]
    surplus = [name for name in found if name not in names]
    shapes = [
        f"{name}: {tuple(found[name].shape)} in the file, {tuple(own[raw].shape)} in the model"
        for name, raw in names.items()
        if name in found and found[name].shape != own[raw].shape
    ]
    if missing or surplus or shapes:
        raise UserError(_misfit(source, len(names), missing, surplus, shapes))
    rest = {raw: value for raw, value in state.items() if raw not in own}
    rest |= {raw_of[name]: value for name, value in (extra or {}).items() if name in raw_of}
    model.load_state_dict({names[name]: value for name, value in found.items()} | rest)


def _misfit(source: str, total: int, missing: list[str], surplus: list[str], shapes: list[str]) -> str:
    parts = []
    for label, names in (("missing in the file", missing), ("not in the model", surplus), ("of another shape", shapes)):
        if names:
            more = f" ... and {len(names) - 5} more" if len(names) > 5 else ""
            parts.append(f"{len(names)} {label} ({'; '.join(names[:5])}{more})")
    seen = f"{source} is of another architecture: of the model's {total} tensors, " + ", ".join(parts)
    return explain(seen, "the same names and shapes", next_step="use the recipe and options that it was saved with")
