"""Which number format a run computes in, and the loss scaler that fp16 needs."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

Name = Literal["fp64", "fp32", "bf16", "fp16"]


def resolve(choice: Literal["auto", "fp64", "fp32", "bf16", "fp16"], device: torch.device) -> Name:
    """`auto` is bf16 where the device has it in hardware, else fp16 on CUDA, else fp32."""
    if choice != "auto":
        return choice
    if device.type == "cuda":
        major, _ = torch.cuda.get_device_capability(device)
        return "bf16" if major >= 8 else "fp16"
    return "bf16" if _cpu_has_bf16() else "fp32"


def _cpu_has_bf16() -> bool:
    probes = "_is_avx512_bf16_supported", "_is_amx_tile_supported"
    return any(getattr(torch.cpu, name, lambda: False)() for name in probes)


@dataclass(frozen=True)
class Precision:
    """The format of one run.

    Attributes:
        name: fp64 casts model and inputs; bf16 and fp16 run forward under autocast with fp32 weights.
        device: where the run computes.
        scaler: scales the loss so that small fp16 gradients do not vanish; inactive otherwise.
    """

    name: Name
    device: torch.device
    scaler: torch.amp.GradScaler

    @staticmethod
    def of(choice: Literal["auto", "fp64", "fp32", "bf16", "fp16"], device: torch.device) -> "Precision":
        """The precision of a config on a device."""
        name = resolve(choice, device)
        return Precision(name, device, torch.amp.GradScaler(device.type, enabled=name == "fp16"))

    @property
    def dtype(self) -> torch.dtype | None:
        """The type that weights and floating inputs are cast to; None keeps theirs."""
        return torch.float64 if self.name == "fp64" else None

    @property
    def low(self) -> bool:
        """Whether forward computes in a format that overflows or rounds sooner than fp32."""
        return self.name in ("bf16", "fp16")

    def autocast(self) -> AbstractContextManager[object]:
        """The context of every forward."""
        if not self.low:
            return nullcontext()
        dtype = torch.bfloat16 if self.name == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype)
