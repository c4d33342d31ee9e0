"""Modules as the user has them: without wrappers, and by clean names."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel


def is_wrapper(module: nn.Module) -> bool:
    """DDP, DataParallel and what torch.compile returns."""
    return isinstance(module, DistributedDataParallel | nn.DataParallel) or "_orig_mod" in module._modules


def first_parameter(module: nn.Module) -> Tensor | None:
    """By torch's own way: a class may have another `parameters`."""
    return next(nn.Module.parameters(module), None)


def autocast(module: nn.Module) -> str:
    """The type that autocast gives a call of it now, "" where it is off."""
    first = first_parameter(module)
    device = first.device.type if first is not None else "cpu"
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return ""
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def unwrapped(module: nn.Module) -> nn.Module:
    """The user's own module."""
    while is_wrapper(module):
        module = module._orig_mod if hasattr(module, "_orig_mod") else module.module  # type: ignore[assignment]
    return module


def clean(name: str) -> str:
    """A parameter's or module's name without what wrappers put in front."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "_checkpoint_wrapped_module"))


def synchronised(norm: nn.Module) -> bool:
    """Whether a norm layer counts with all ranks."""
    return isinstance(norm, SyncBatchNorm) or type(norm).__name__ == "SyncBatchNorm"
