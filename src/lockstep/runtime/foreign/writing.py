"""Weights of any checkpoint into one clean file: `.safetensors` or `.pt`, whole or not at all."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lockstep.core.errors import RunError, UserError, explain
from lockstep.core.files import flush, rename_durably
from lockstep.runtime.foreign.contents import Entry
from lockstep.runtime.foreign.names import printable

if TYPE_CHECKING:
    from torch import Tensor

Form = Literal["safetensors", "pt"]
DTYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def owners(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Tied weights: the further names of a tensor -> its first."""
    first: dict[object, str] = {}
    ties = {}
    for name, entry in entries.items():
        if entry.identity is None or not entry.numel:
            continue
        owner = first.setdefault(entry.identity, name)
        if owner != name:
            ties[name] = owner
    return ties


def load_all(entries: Mapping[str, Entry], dtype: str | None = None) -> "dict[str, Tensor]":
    """Every tensor in memory, tied ones once; floating ones in another type where one is asked for.

    Args:
        entries: by name.
        dtype: a key of `DTYPES`.
    """
    import torch

    ties = owners(entries)
    tensors: dict[str, Tensor] = {}
    for name, entry in entries.items():
        if name in ties:
            tensors[name] = tensors[ties[name]]
            continue
        tensor = entry.load()
        wanted = getattr(torch, DTYPES[dtype]) if dtype and tensor.is_floating_point() else tensor.dtype
        tensors[name] = tensor.to(wanted).contiguous()
    return tensors


def _is_text(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def write_weights(target: Path, entries: Mapping[str, Entry], form: Form, dtype: str | None = None) -> None:
    """Write tensors to a file; a reader sees the old file or the new one, never a part.

    In `.safetensors` a tied tensor is stored under every name, so that any program loads it, and the ties are noted in
    the header. In `.pt` it stays one tensor.

    Raises:
        UserError: where a name cannot be stored in this form.
        RunError: where the disk is full or cannot be written; nothing is left behind then.
    """
    import torch
    from safetensors.torch import save_file

    odd = [name for name in entries if form == "safetensors" and not _is_text(name)]
    if odd:
        must = "a name that can be written as UTF-8"
        raise UserError(
            explain(f"the name {printable(odd[0])}", must, next_step="write a .pt, or leave it out with --only")
        )
    tensors = load_all(entries, dtype)
    beside = target.with_name(f".writing-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if form == "pt":
            with beside.open("wb") as file:
                torch.save(tensors, file)
        else:
            ties = owners(entries)
            apart = {name: tensor.clone() if name in ties else tensor for name, tensor in tensors.items()}
            save_file(apart, beside, {"format": "pt", **({"ties": json.dumps(ties)} if ties else {})})
        flush(beside)
        rename_durably(beside, target)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError | RuntimeError) or type(error).__name__ == "SafetensorError":
            must = "room and write access"
            raise RunError(explain(f"{target} could not be written: {error}", must, str(target.parent))) from None
        raise
