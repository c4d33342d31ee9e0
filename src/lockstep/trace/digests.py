"""Short digests of tensors: of all bytes, or of a few elements where speed matters."""

import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SAMPLE = 8


def to_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values on the CPU; bfloat16, which numpy lacks, as float32."""
    value = tensor.detach()
    if value.dtype == torch.bfloat16:
        value = value.float()
    if value.is_sparse:
        value = value.to_dense()
    result: np.ndarray[Any, Any] = np.ascontiguousarray(value.cpu().numpy())
    return result


def full_digest(tensor: Tensor) -> str:
    """16 hex digits of all values, type and shape."""
    value = to_numpy(tensor)
    return blake2b(value.data, digest_size=8, person=f"{value.dtype}{value.shape}".encode()[:16]).hexdigest()


def sampled_digests(tensors: Sequence[Tensor]) -> list[str]:
    """8 hex digits each, of at most 8 elements; one copy to the host for all of them."""
    samples = [_sample(tensor.detach()) for tensor in tensors]
    digests = [""] * len(samples)
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, sample in enumerate(samples):
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
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
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
