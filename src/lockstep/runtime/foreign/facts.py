"""Step, epoch, optimizer, random states: what the values beside the tensors say."""

import struct
from collections.abc import Collection, Mapping
from typing import Any

from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.placeholder import Foreign
from lockstep.runtime.foreign.tensor_ref import TensorRef
from lockstep.runtime.foreign.tree import is_optimizer, is_rng, items_of

# Tensors that an optimizer keeps for a parameter -> its name. The first that fits.
_OPTIMIZERS = (
    ({"exp_avg", "exp_inf"}, "Adamax"),
    ({"exp_avg", "mu_product"}, "NAdam"),
    ({"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, "Adam or AdamW with amsgrad"),
    ({"exp_avg", "exp_avg_sq"}, "Adam or AdamW"),
    ({"exp_avg"}, "Lion, or another with one average"),
    ({"square_avg", "acc_delta"}, "Adadelta"),
    ({"square_avg"}, "RMSprop"),
    ({"momentum_buffer"}, "SGD with momentum"),
    ({"sum"}, "Adagrad"),
    ({"row_var"}, "Adafactor"),
)
_NUMPY = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i", "u8": "<Q", "u4": "<I", "b1": "<?"}
_LONGEST = 60


def facts_of(root: Any, elsewhere: Collection[str] = ()) -> dict[str, Any]:
    """The plain values at the top of a checkpoint, what its optimizers are, and which random states are in it.

    Args:
        root: the value of a file.
        elsewhere: what its optimizer keeps for a parameter in other files.
    """
    facts: dict[str, Any] = {}
    rng = []
    for key, value in (items_of(root) or [])[:1000]:
        plain = plain_value(value)
        if plain is not None:
            facts[text_of(key)] = plain
        if is_optimizer(value):
            facts[text_of(key)] = optimizer_of(value, elsewhere)
        elif isinstance(value, list) and value and all(map(is_optimizer, value)):
            facts[text_of(key)] = "; ".join(optimizer_of(one) for one in value)
        elif is_rng(text_of(key)):
            rng.append(text_of(key))
    if is_optimizer(root):
        facts = {"optimizer": optimizer_of(root)}
    if rng:
        facts["random states"] = ", ".join(rng)
    return facts


def plain_value(value: Any) -> Any:
    """A number or short text, also where numpy wrote it; None for anything else."""
    if isinstance(value, int) and value.bit_length() > 64:
        return text_of(value)
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    if isinstance(value, Foreign) and value.origin.endswith("multiarray.scalar") and len(value.args) == 2:
        kind, data = value.args
        form = _NUMPY.get(text_of(kind.args[0])) if isinstance(kind, Foreign) and kind.args else None
        if form and isinstance(data, bytes) and len(data) == struct.calcsize(form):
            return struct.unpack(form, data)[0]
    return None


def optimizer_of(state: Mapping[str, Any], elsewhere: Collection[str] = ()) -> str:
    """What kind of optimizer a state dict is of, its learning rates, and how far it is.

    Args:
        state: a state dict that `is_optimizer` takes for one.
        elsewhere: what is kept for a parameter in other files, such as `exp_avg`.
    """
    first: Mapping[Any, Any] = next((one for one in state["state"].values() if isinstance(one, dict)), {})
    kept = {text_of(key) for key, value in first.items() if value is not None} | set(elsewhere)
    kind = next((name for keys, name in _OPTIMIZERS if keys <= kept), "")
    if not kind:
        kind = f"one that keeps {', '.join(sorted(kept))}" if kept else "SGD, or one before its first step"
    groups = [group for group in state["param_groups"] if isinstance(group, dict)]
    rates = sorted({f"{rate:g}" for group in groups if isinstance(rate := plain_value(group.get("lr")), float)})
    lr = f", lr {' '.join(rates)}" if rates else ""
    step = first.get("step")
    if isinstance(step, TensorRef):
        step = float(step.load()) if not step.shape and not step.dtype.startswith("complex") else None
    step = plain_value(step)
    at = f", step {step:g}" if isinstance(step, int | float) else ""
    return f"{kind}{lr}, {len(groups)} group{'s' * (len(groups) != 1)}{at}"
