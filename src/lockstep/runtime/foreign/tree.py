"""The value of a pickle -> groups of named tensors: state dicts wherever they lie, and modules pickled whole."""

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.runtime.foreign.contents import Entry
from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.placeholder import Foreign
from lockstep.runtime.foreign.tensor_ref import TensorRef
from lockstep.runtime.foreign.window import DamagedFileError

# Keys under which programs keep the weights of their model, the likeliest first.
MODEL_KEYS = (
    *("state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params", "model_states"),
    *("model_ema", "ema_state_dict", "ema", "teacher", "student", "generator", "discriminator"),
)
_RNG = ("rng", "random_state", "random_states", "generator_state", "cuda_rng_state")
MOST_NODES, DEEPEST = 200_000, 40
_STRUCTURES = (TensorRef, dict, list, tuple, Foreign)


def groups_of(root: Any) -> dict[str, dict[str, Entry]]:
    """Tensors by name, by the key of the state dict that they are in; "" is the value itself."""
    found: dict[str, dict[str, Entry]] = {}
    loose = dict(flat(root)) if isinstance(root, list | tuple) else _collect(root, "", found, 0)
    if loose:
        found = {"": loose, **found}
    return found


def weights_group(groups: Mapping[str, Any]) -> str | None:
    """The group that holds the model's weights; None where that is not clear."""
    candidates = [name for name in groups if not is_training_state(name)]
    for key in MODEL_KEYS[: MODEL_KEYS.index("params") + 1]:
        matching = [name for name in candidates if name.rpartition(".")[2] == key]
        if len(matching) == 1:
            return matching[0]
    named = [name for name in candidates if name] or candidates
    return named[0] if len(named) == 1 else None


def is_training_state(name: str) -> bool:
    """Whether a group belongs to the training rather than to a model: optimizer, random state."""
    last = name.rpartition(".")[2].lower()
    words = ("optim", "scheduler", "schedule", "scaler", "callbacks", "loops", "random")
    return is_rng(last) or any(word in name.lower() for word in words)


def is_rng(key: str) -> bool:
    """Whether a key is that of a random state."""
    return any(word in key.lower() for word in _RNG)


def is_optimizer(value: Any) -> bool:
    """Whether a value is the state dict of an optimizer."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("state"), dict) and isinstance(value.get("param_groups"), list | tuple)


def items_of(value: Any) -> list[tuple[Any, Any]] | None:
    """The named parts of a mapping, a module or an object; None for anything else."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, Foreign):
        attributes = value.attributes
        if is_module(value):
            left_out = attributes.get("_non_persistent_buffers_set")
            left_out = left_out if isinstance(left_out, set | frozenset | list | tuple) else ()
            buffers = [item for item in attributes.get("_buffers", {}).items() if item[0] not in left_out]
            return [*attributes.get("_parameters", {}).items(), *buffers, *attributes.get("_modules", {}).items()]
        return [*value.pairs, *attributes.items()]
    return None


def is_module(value: Any) -> bool:
    """Whether a placeholder stands for a pickled `nn.Module`."""
    if not isinstance(value, Foreign):
        return False
    parts = [value.attributes.get(name) for name in ("_parameters", "_modules", "_buffers")]
    return all(isinstance(part, dict) for part in parts)


def _collect(value: Any, path: str, found: dict[str, dict[str, Entry]], depth: int) -> dict[str, Entry]:
    """Put the groups below a value into `found`; returns the tensors that lie in it without a group."""
    items = items_of(value)
    if items is None or depth > 6:
        return {}
    if is_optimizer(value) or is_module(value) or (path and is_training_state(path)) or _is_state_dict(value, path):
        tensors = dict(flat(value))
        if path and tensors:
            found[path] = tensors
            return {}
        return tensors
    loose: dict[str, Entry] = {}
    for key, item in items:
        below = f"{path}.{key}" if path else text_of(key)
        if isinstance(item, TensorRef) and is_rng(text_of(key)):
            found[below] = {"": Entry.of(item)}
        elif isinstance(item, TensorRef):
            loose[below] = Entry.of(item)
        elif isinstance(item, list | tuple):
            if listed := dict(flat(item)):
                found[below] = listed
        else:
            loose |= _collect(item, below, found, depth + 1)
    return loose


def _is_state_dict(value: Any, path: str) -> bool:
    """Whether the tensors below a mapping belong together: it holds some itself, or its key is that of a model."""
    if not isinstance(value, dict):
        return False
    known = [key for key in MODEL_KEYS if items_of(value.get(key)) is not None]
    if known and not path:
        return False  # {"model": {...}, "loss": tensor}
    direct = any(isinstance(item, TensorRef) and not is_rng(text_of(key)) for key, item in value.items())
    return direct or (path.rpartition(".")[2] in MODEL_KEYS and not known)


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Every tensor below a value, by its dotted name; what contains itself is not followed.

    Raises:
        DamagedFileError: where there is no end to it.
    """
    budget = [MOST_NODES]
    yield from _flat(value, prefix, budget, ())


def _flat(value: Any, path: str, budget: list[int], above: tuple[int, ...]) -> Iterator[tuple[str, Entry]]:
    budget[0] -= 1
    if budget[0] < 0 or len(above) > DEEPEST:
        raise DamagedFileError("its structure is nested without end: a trap")
    if isinstance(value, TensorRef):
        yield path, Entry.of(value)
        return
    parts = list(enumerate(value)) if isinstance(value, list | tuple) else items_of(value)
    if parts and id(value) not in above:
        for key, part in parts:
            if isinstance(part, _STRUCTURES):
                yield from _flat(part, f"{path}.{key}" if path else text_of(key), budget, (*above, id(value)))
