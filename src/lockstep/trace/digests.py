"""Short digests of tensors: of all bytes, or of a few elements where speed matters."""

import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SAMPLE = 8
_FLOATS = (torch.float16, torch.float32, torch.float64)


def to_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values on the CPU; as float32 or complex64 where numpy lacks their type."""
    value = tensor.detach()
    if value.is_nested:
        value = value.to_padded_tensor(0)
    if value.layout is not torch.strided:
        value = value.to_dense()
    if value.is_quantized:
        value = value.dequantize()
    if value.is_floating_point() and value.dtype not in _FLOATS:
        value = value.float()
    if value.dtype == torch.complex32:
        value = value.to(torch.complex64)
    result: np.ndarray[Any, Any] = np.ascontiguousarray(value.numpy(force=True))
    return result


def full_digest(tensor: Tensor) -> str:
    """16 hex digits of all values, type and shape; "" where there are no values (a meta tensor)."""
    if tensor.is_meta:
        return ""
    value = to_numpy(tensor)
    return blake2b(value.data, digest_size=8, person=f"{value.dtype}{value.shape}".encode()[:16]).hexdigest()


def sampled_digests(tensors: Sequence[Tensor]) -> list[str]:
    """8 hex digits each, of at most 8 elements; one copy to the host for all of them. "" where there are no values."""
    samples = [_sample(tensor.detach()) for tensor in tensors]
    digests = [""] * len(samples)
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, sample in enumerate(samples):
        if not sample.is_meta:
            kinds.setdefault((sample.dtype, sample.device), []).append(index)
    for indices in kinds.values():
        data = to_numpy(torch.cat([samples[index] for index in indices])).tobytes()
        each = len(data) // max(sum(samples[index].numel() for index in indices), 1)
        start = 0
        for index in indices:
            end = start + samples[index].numel() * each
            digests[index] = f"{zlib.crc32(data[start:end]):08x}"
            start = end
    return digests


def _sample(tensor: Tensor) -> Tensor:
    """Elements at equal distances in memory: of any dense layout, without a copy of the whole."""
    if tensor.is_quantized or tensor.is_nested:
        return _sample(torch.from_numpy(to_numpy(tensor)))
    if tensor.is_sparse:
        tensor = tensor.coalesce()
        return torch.cat([_sample(tensor.values()), _sample(tensor.indices()).to(tensor.dtype)])
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    numel = tensor.numel()
    if numel <= _SAMPLE:
        return tensor.reshape(-1)
    dense = tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.preserve_format) or _dense(tensor)
    if not dense:
        return tensor.reshape(-1)[:: numel // _SAMPLE][:_SAMPLE]
    return tensor.as_strided((_SAMPLE,), (numel // _SAMPLE,), tensor.storage_offset())


def _dense(tensor: Tensor) -> bool:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return reach + 1 == tensor.numel()
