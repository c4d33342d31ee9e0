"""Refused before it is written: what a resume could not read, since code in a checkpoint is never run."""

import io
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.core.errors import UserError, explain

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
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
        for where, odd in _odd(value, part):
            if not _comes_back(odd):
                kind = f"{type(odd).__module__}.{type(odd).__qualname__}"
                seen = f"{where} is of type {kind}, which a resume could not read"
                must = "plain values and tensors; code in a checkpoint is never run"
                raise UserError(explain(seen, must, next_step=f"let {_SOURCES.get(part, part)} be plain values"))


def _odd(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The values that are not plain by their type alone, with where they stand."""
    if type(value) is dict:
        for key, one in value.items():
            yield from _odd(key, f"a key of {where}")
            yield from _odd(one, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for number, one in enumerate(value):
            yield from _odd(one, f"{where}[{number}]")
    elif type(value) not in (*_PLAIN, Tensor):
        yield where, value


def _comes_back(value: Any) -> bool:
    file = io.BytesIO()
    try:
        torch.save(value, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError):  # a local class, a lock
        return False
    return True
