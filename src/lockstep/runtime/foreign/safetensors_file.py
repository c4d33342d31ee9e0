"""A `.safetensors` file: a header in JSON, then the bytes of the tensors; the header is checked against the file."""

import json
from dataclasses import dataclass
from math import prod
from typing import Any

from lockstep.runtime.foreign.dtypes import BYTES, SAFETENSORS
from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.tensor_ref import Storage, TensorRef, are_sizes
from lockstep.runtime.foreign.window import DamagedFileError, Window

LARGEST_HEADER = 100_000_000  # bytes; the limit of the format
_TIES = "ties"


@dataclass(frozen=True)
class Safetensors:
    """Tensors by name, still in the file, and the texts of the header; the names of tied weights among them."""

    tensors: dict[str, TensorRef]
    metadata: dict[str, str]


def looks_like_one(window: Window) -> bool:
    """Whether the first bytes are the length of a header and its brace."""
    head = bytes(window.read(9))
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") <= LARGEST_HEADER


def read_safetensors(window: Window) -> Safetensors:
    """The tensors of a file.

    Raises:
        DamagedFileError: where header and file contradict each other.
    """
    length = int.from_bytes(window.part(0, 8).read(), "little") if window.nbytes >= 8 else -1
    if not 0 < length <= min(LARGEST_HEADER, window.nbytes - 8):
        raise DamagedFileError(f"its header should have {length} bytes, and the file has {window.nbytes} in all")
    try:
        header = json.loads(window.part(8, length).read().decode("utf-8"))
        metadata = {key: text_of(value) for key, value in (header.pop("__metadata__", None) or {}).items()}
        entries = {name: _entry(entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(f"its header cannot be read: {error}") from None
    data = window.part(8 + length, window.nbytes - 8 - length)
    tensors = {name: _tensor(name, *entry, data) for name, entry in entries.items()}
    _no_gaps([(start, end, name) for name, (_, _, start, end) in entries.items()], data.nbytes)
    for name, owner in _ties(metadata).items():
        if owner in tensors and (name not in tensors or _equal(tensors[name], tensors[owner])):
            tensors[name] = tensors[owner]
    return Safetensors(tensors, metadata)


def _equal(one: TensorRef, other: TensorRef) -> bool:
    """Whether two tensors that a file stores are one: it may have been trained on apart, under the same metadata."""
    windows = one.storage.window, other.storage.window
    if (one.shape, one.dtype) != (other.shape, other.dtype) or None in windows:
        return False
    return windows[0].read() == windows[1].read()  # type: ignore[union-attr]


def _entry(entry: dict[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    start, end = entry["data_offsets"]
    return SAFETENSORS[entry["dtype"]], tuple(entry["shape"]), start, end


def _tensor(name: str, dtype: str, shape: tuple[int, ...], start: int, end: int, data: Window) -> TensorRef:
    if not are_sizes(*shape, start, end):
        raise DamagedFileError(f"{name}: its shape or its place in the file is none")
    if end - start != prod(shape) * BYTES[dtype]:
        raise DamagedFileError(f"{name}: {end - start} bytes for a tensor of shape {shape} and type {dtype}")
    if end > data.nbytes:
        raise DamagedFileError(f"{name} ends {end - data.nbytes} bytes behind the end of the file: it was cut off")
    storage = Storage(name, dtype, prod(shape))
    storage.window = data.part(start, end - start)
    stride = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    try:
        return TensorRef(storage, 0, shape, stride, dtype).checked()
    except DamagedFileError as error:
        raise DamagedFileError(f"{name}: {error}") from None


def _no_gaps(spans: list[tuple[int, int, str]], nbytes: int) -> None:
    at = 0
    for start, end, name in sorted(spans):
        if start != at:
            raise DamagedFileError(f"{name} begins at byte {start} of the data, and the tensor before it ends at {at}")
        at = end
    if at != nbytes:
        raise DamagedFileError(f"{nbytes - at} bytes follow the last tensor")


def _ties(metadata: dict[str, str]) -> dict[str, str]:
    try:
        ties = json.loads(metadata.get(_TIES, "{}"))
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(owner) for name, owner in ties.items()} if isinstance(ties, dict) else {}
