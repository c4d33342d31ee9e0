"""A cheap watch over the law SAME in a long run: a digest of what every rank must hold alike, now and then."""

import weakref
import zlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

EVERY = 100
"""Steps between two digests, after the first ones (1, 10)."""
_PRIME = 1_000_003


class Sameness:
    """The wrapped models of this rank. Only what DistributedDataParallel keeps alike over all ranks is looked at.

    And only those that the step has used: which of the earlier ones Python has freed by then differs between ranks.
    """

    def __init__(self) -> None:
        self._wrappers: list[weakref.ref[DistributedDataParallel]] = []

    def follow(self, ddp: DistributedDataParallel) -> None:
        """A wrapper is used in this step."""
        if ddp._comm_hooks:  # what reduces in its own way need not keep every step alike
            return
        if not any(reference() is ddp for reference in self._wrappers):
            self._wrappers.append(weakref.ref(ddp))

    def stepped(self) -> None:
        """The step is over."""
        self._wrappers.clear()

    def due(self, step: int) -> bool:
        """Whether the parameters are looked at after this step."""
        return bool(self._wrappers) and (step in (1, 10) or step % EVERY == 0)

    def digest(self, step: int) -> int:
        """64 bits of one element of every parameter; which one moves with the step, so that all get their turn."""
        parameters = [
            parameter.detach()
            for reference in self._wrappers
            if (ddp := reference()) is not None and ddp.process_group.size() == dist.get_world_size()
            for name, parameter in ddp.module.named_parameters()
            if name not in ddp.parameters_to_ignore
        ]
        return sampled_digest([one for one in parameters if one.layout is torch.strided and one.numel()], step)


def sampled_digest(tensors: Sequence[Tensor], step: int) -> int:
    """Digest of one element of each tensor, at a place that depends on the step and the tensor's number."""
    turn = step // EVERY or step  # each turn another element, also where a tensor's size shares factors with EVERY
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for number, tensor in enumerate(tensors):
        index = (turn * _PRIME + number) % tensor.numel()
        place = []
        for size in reversed(tensor.shape):
            index, inner = divmod(index, size)
            place.append(inner)
        element = tensor[tuple(reversed(place))] if place else tensor
        kinds.setdefault((tensor.dtype, tensor.device), []).append(element.reshape(1))
    low, high = 0, 1
    for elements in kinds.values():
        data = torch.cat(elements).view(torch.uint8).cpu().numpy().tobytes()
        low, high = zlib.crc32(data, low), zlib.adler32(data, high)
    return low << 32 | high
