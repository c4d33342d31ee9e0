"""Batches from host to device: pinned, non-blocking, one batch ahead on CUDA."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def to_device(batch: Any, device: torch.device, dtype: torch.dtype | None, channels_last: bool) -> Any:
    """Move every tensor of a nested batch.

    Args:
        batch: tensors in dicts, lists, tuples, named tuples and data classes, or an object with `.to(device)`.
        device: where to.
        dtype: type for floating tensors, None to keep theirs.
        channels_last: lay out (N, C, H, W) float tensors with C innermost.
    """
    if isinstance(batch, Tensor):
        floating = batch.is_floating_point()
        layout = torch.channels_last if channels_last and floating and batch.dim() == 4 else torch.preserve_format
        kind = dtype if floating else None
        return batch.to(device, kind or batch.dtype, non_blocking=True, memory_format=layout)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device, dtype, channels_last) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device, dtype, channels_last) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device, dtype, channels_last) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        fields = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch) if field.init}
        moved = {name: to_device(value, device, dtype, channels_last) for name, value in fields.items()}
        return dataclasses.replace(batch, **moved)
    return batch.to(device) if hasattr(batch, "to") else batch


def ahead(
    batches: Iterable[Any], device: torch.device, dtype: torch.dtype | None, channels_last: bool
) -> Iterator[tuple[Any, Any]]:
    """Pairs (host batch, device batch); on CUDA the next copy runs on its own stream during the current step."""
    if device.type != "cuda":
        for batch in batches:
            yield batch, to_device(batch, device, dtype, channels_last)
        return
    copies = torch.cuda.Stream(device)
    waiting: tuple[Any, Any, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(copies):
            coming = batch, to_device(batch, device, dtype, channels_last), copies.record_event()
        if waiting is not None:
            yield _arrived(*waiting)
        waiting = coming
    if waiting is not None:
        yield _arrived(*waiting)


def _arrived(host: Any, batch: Any, copied: torch.cuda.Event) -> tuple[Any, Any]:
    """Make the current stream wait for this copy, and keep the allocator from reusing its memory too soon."""
    current = torch.cuda.current_stream()
    current.wait_event(copied)
    for _, tensor in tensors_in(batch):
        tensor.record_stream(current)
    return host, batch


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in lists, tuples, mappings and dataclasses, with the path that leads to it."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from tensors_in(item, f"{path}[{i}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
