"""CPUs in the place of GPUs that a program names without asking: `.cuda()`, `device="cuda:0"`, `device_ids=[rank]`."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from lockstep.trace.recorder import Recorder

_GPU = re.compile(r"cuda(:\d+)?")
_WANTED = re.compile(r"cuda|nvidia|device_ids|accelerator", re.IGNORECASE)
_NOTHING = ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "init")


def is_wanted(problem: str) -> bool:
    """Whether a program seems to have ended for want of a GPU."""
    return bool(_WANTED.search(problem))


def enter(recorder: Recorder, num_devices: int) -> None:
    """From now on, for the whole process. num_devices: what `torch.cuda.device_count()` says."""
    recorder.patch(DistributedDataParallel, "__init__", _without("device_ids", "output_device"))
    for name, unwanted in (("init_process_group", "device_id"), ("barrier", "device_ids")):
        recorder.patch(c10d, name, _without(unwanted))
        setattr(dist, name, getattr(c10d, name))
    recorder.patch(torch, "load", _loading)
    for name in _NOTHING:
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    setattr(torch.cuda, "current_device", lambda: 0)  # noqa: B010
    setattr(torch.cuda, "device_count", lambda: num_devices)  # noqa: B010
    setattr(torch.cuda, "get_device_name", lambda *args: "CPU")  # noqa: B010
    mode: Any = OnCpu()
    mode.__enter__()


class OnCpu(TorchFunctionMode):
    """Every device that a torch function is given and that is a GPU becomes the CPU."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of its own."""
        if func in (Tensor.cuda, Tensor.pin_memory):
            return args[0]
        if func is Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], "cpu", *args[2:])
        given = {key: here(value) for key, value in (kwargs or {}).items()}
        return func(*map(here, args), **given)


def here(device: Any) -> Any:
    """The CPU for a GPU; anything else as it is."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    return "cpu" if isinstance(device, str) and _GPU.fullmatch(device) else device


def _without(*names: str) -> Callable[[Any], Any]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **{key: value for key, value in kwargs.items() if key not in names})

        return call

    return make


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {key: here(value) for key, value in map_location.items()}
        return original(file, "cpu" if map_location is None else here(map_location), *args, **kwargs)

    return load
