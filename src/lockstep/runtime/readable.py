"""What a resume could read: plain values and tensors. Code in a checkpoint is never run, so nothing else is written."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.core.errors import UserError, explain

_PLAIN = (bool, int, float, complex, str, bytes, type(None), Tensor)
_SOURCES = {
    "extra_state": "get_extra_state() of the model",
    "stream": "state_dict() of the training data",
    "optimizer": "the optimizer's state",
    "schedule": "the schedule's state_dict()",
    "notes": "what stands in State.notes",
}


def check_readable(trainer: Mapping[str, Any]) -> None:
    """Look through all that goes into a checkpoint beside its weights.

    Args:
        trainer: the parts by name.

    Raises:
        UserError: a value that `torch.load(weights_only=True)` refuses; it says where it stands.
    """
    for part, value in trainer.items():
        odd = unreadable_part(value, part)
        if odd:
            seen, must = f"{odd}, which a resume could not read", "plain values and tensors; code is never run"
            raise UserError(explain(seen, must, next_step=f"let {_SOURCES.get(part, part)} be plain values"))


def unreadable_part(value: Any, name: str) -> str:
    """The first part of a value that `torch.load(weights_only=True)` refuses: `name['a'][0] is of type numpy.float64`.

    "" where there is none.
    """
    try:
        for where, one in _odd(value, name):
            if not _comes_back(one):
                return f"{where} is of type {type(one).__module__}.{type(one).__qualname__}"
    except RecursionError:  # it holds itself, which a file may
        return "" if _comes_back(value) else f"{name} holds itself"
    return ""


def _odd(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The values that are not plain by their type alone, with where they stand."""
    if type(value) is dict:
        for key, one in value.items():
            yield from _odd(key, f"a key of {where}")
            yield from _odd(one, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for number, one in enumerate(value):
            yield from _odd(one, f"{where}[{number}]")
    elif type(value) not in _PLAIN:
        yield where, value


def _comes_back(value: Any) -> bool:
    file = io.BytesIO()
    try:
        torch.save(value, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception:  # whatever a foreign object raises when it is pickled
        return False
    return True
