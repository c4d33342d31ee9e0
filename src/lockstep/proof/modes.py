"""How a take differs from an ordinary run: seeds, precision, and one cause at a time taken away."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks, register_optimizer_step_pre_hook

from lockstep.runtime.parallel import batch_norm
from lockstep.trace import double
from lockstep.trace.events import Step
from lockstep.trace.feed import Feed
from lockstep.trace.hooks.optimizers import keyed
from lockstep.trace.recorder import Recorder
from lockstep.trace.seeds import seed_all, seed_anew
from lockstep.trace.sink import read_tensor
from lockstep.trace.trace import read_trace


@dataclass(frozen=True)
class Mode:
    """What is done to a program before it starts.

    Attributes:
        fixed: all randomness is a function of batch and step, the same on every rank; torch.compile is off.
        high: float64, no autocast, no dropout, draws cut as the batch is cut.
        norms: BatchNorm: `own` as the program has it (a SyncBatchNorm is synchronised on CPU too), `local` never
            synchronised, `synced` always.
        no_dropout: dropout is off (`high` implies it).
        factor: of every loss at its backward.
        averaged: gradients are averaged over the ranks before each step, whatever the program did.
        lr: rates that are used instead of the program's: of each optimizer, step by step, group by group.
        start: a trace folder whose parameters at the first step replace the program's.
    """

    fixed: bool = False
    high: bool = False
    norms: str = "own"
    no_dropout: bool = False
    factor: float = 1.0
    averaged: bool = False
    lr: tuple[tuple[tuple[float, ...], ...], ...] | None = None
    start: Path | None = None

    def __call__(self, recorder: Recorder, feed: Feed | None) -> None:
        """Called when the hooks are in place, before the script."""
        _on_cpu(recorder)
        _norms(self.norms)
        if self.fixed:
            seed_all("start")
            recorder.after_step.append(lambda step: seed_all("step", step))
            vars(torch)["compile"] = _not_compiled
        else:
            seed_anew()
        if self.high:
            _plain_precision()
            double.enter(None if feed is None else lambda: feed.current)
        if self.high or self.no_dropout:
            recorder.watch_models.append(double.without_dropout)
        if self.no_dropout and not self.high:
            _functional_dropout_off()
        if self.start is not None:
            _transplanted(recorder, self.start)
        if self.factor != 1.0:
            recorder.patch(torch.autograd, "backward", lambda original: _scaled(original, self.factor))
        _before_steps(self, recorder)


def _on_cpu(recorder: Recorder) -> None:
    """A backend for GPUs that the program names becomes the one for CPUs."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
            return original("gloo" if backend and "nccl" in backend else backend, *args, **kwargs)

        return init

    recorder.patch(dist, "init_process_group", make)
    vars(c10d)["init_process_group"] = dist.init_process_group


def _not_compiled(model: Any = None, **kwargs: Any) -> Any:
    return model if model is not None else lambda function: function


def _plain_precision() -> None:
    for owner in (torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler):
        original: Callable[..., None] = getattr(owner, "__init__")  # noqa: B009

        def off(self: Any, *args: Any, original: Callable[..., None] = original, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self._enabled = False

        setattr(owner, "__init__", off)  # noqa: B010


def _functional_dropout_off() -> None:
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        setattr(nn.functional, name, lambda input, *args, **kwargs: input)


def _norms(which: str) -> None:
    # The tool's own reductions are no part of what the program communicates.
    names = ("all_gather", "all_reduce", "get_world_size", "is_initialized")
    unseen = {name: getattr(getattr(dist, name), "__wrapped__", getattr(dist, name)) for name in names}
    vars(batch_norm)["dist"] = SimpleNamespace(**unseen)
    original = nn.SyncBatchNorm.forward

    def forward(norm: Any, input: Any) -> Any:
        if which == "local":
            return _BatchNorm.forward(norm, input)
        return original(norm, input) if input.is_cuda else batch_norm.normalise(norm, input)

    # The wrapper refuses such layers on a CPU before they could refuse themselves.
    setattr(DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda wrapper, module: None)  # noqa: B010
    setattr(nn.SyncBatchNorm, "forward", forward)  # noqa: B010
    if which == "synced":
        for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            setattr(kind, "forward", batch_norm.normalise)  # noqa: B010


def _transplanted(recorder: Recorder, folder: Path) -> None:
    """Before the first forward the parameters become those that the reference had before its first step."""
    reference = read_trace(folder).ranks[0]
    places = {event.optimizer: event.start_tensors for event in reference.of(Step) if event.number == 0}
    done: list[bool] = []

    @torch.no_grad()
    def transplant() -> None:
        if done:
            return
        done.append(True)
        for number, optimizer in enumerate(recorder.optimizers):
            for key, one in keyed(optimizer).items():
                value = read_tensor(folder, 0, places.get(number, {}).get(key, -1))
                if value is not None and value.shape == tuple(one.shape):
                    one.copy_(torch.from_numpy(value))

    recorder.before_forward.append(transplant)


def _scaled(original: Callable[..., None], factor: float) -> Callable[..., None]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        scaled = tensors * factor if isinstance(tensors, torch.Tensor) else [one * factor for one in tensors]
        original(scaled, *args, **kwargs)

    return backward


def _before_steps(mode: Mode, recorder: Recorder) -> None:
    made: dict[int, int] = {}

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # Numbered as the recorder does: in order of building.
        number = next((index for index, one in enumerate(recorder.optimizers) if one is optimizer), -1)
        step = made[number] = made.get(number, -1) + 1
        if mode.averaged:
            _average(optimizer)
        rates = mode.lr[number] if mode.lr is not None and 0 <= number < len(mode.lr) else ()
        for group, rate in zip(optimizer.param_groups, rates[step] if step < len(rates) else (), strict=False):
            group["lr"] = rate

    handle = register_optimizer_step_pre_hook(before)
    # Before the recorder looks.
    hooks: Any = _global_optimizer_pre_hooks
    hooks.move_to_end(handle.id, last=False)


def _average(optimizer: Optimizer) -> None:
    if not dist.is_initialized():
        return
    for one in keyed(optimizer).values():
        grad = one.grad if one.grad is not None else torch.zeros_like(one)
        vars(batch_norm)["dist"].all_reduce(grad)
        one.grad = grad / dist.get_world_size()
