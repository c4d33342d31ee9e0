"""Optimizers: what they hold, and each step with its gradients and parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import Optimizer as TorchOptimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lockstep.trace.events import Optimizer, Step
from lockstep.trace.hooks.models import Models
from lockstep.trace.hooks.modules import clean, unwrapped
from lockstep.trace.recorder import Recorder


@dataclass
class Held:
    """An optimizer of this process."""

    number: int
    steps: int = 0
    told: Optimizer | None = None
    facts: tuple[Any, ...] = ()
    pending: dict[str, Any] | None = None
    closure: bool = False


class Optimizers:
    """All optimizers of this process."""

    def __init__(self, recorder: Recorder, models: Models) -> None:
        self.recorder, self.models = recorder, models
        self.held: WeakKeyDictionary[TorchOptimizer, Held] = WeakKeyDictionary()

    def before(self, optimizer: TorchOptimizer, closure: bool = False) -> None:
        """A step begins. closure: it makes its gradients itself."""
        recorder = self.recorder
        if not recorder.alive or torch.compiler.is_compiling():
            return
        held = self.held.setdefault(optimizer, Held(self._number(optimizer)))
        held.pending, held.closure = {}, closure
        with recorder.ours:
            parameters = keyed(optimizer)
            self._introduce(optimizer, held, parameters)
            held.pending["lr"] = tuple(_number(group["lr"]) for group in optimizer.param_groups if "lr" in group)
            if not closure:
                self._gradients(held.pending, parameters)
            if recorder.detailed and (held.steps == 0 or recorder.keeps):
                values = {key: _own_part(one) for key, one in parameters.items()}
                held.pending["before"] = recorder.digests(list(values), list(values.values()))
                if held.steps == 0 and recorder.keeps:
                    held.pending["start_tensors"] = {key: recorder.keep(one) for key, one in values.items()}

    def _gradients(self, pending: dict[str, Any], parameters: dict[str, Tensor]) -> None:
        recorder = self.recorder
        graded = {key: _own_part(one.grad) for key, one in parameters.items() if one.grad is not None}
        pending["missing"] = tuple(key for key in parameters if key not in graded)
        if recorder.detailed:
            grads = list(graded.values())
            pending["grads"] = recorder.digests(list(graded), grads)
            if recorder.keeps and grads:
                pending["grad_tensors"] = {key: recorder.keep(one) for key, one in graded.items()}
                pending["norm"] = float(torch.linalg.vector_norm(torch.stack([_norm(one) for one in grads])))

    def _number(self, optimizer: TorchOptimizer) -> int:
        """In order of building; one that was built before the hooks comes last."""
        known = self.recorder.optimizers
        if all(optimizer is not one for one in known):
            known.append(optimizer)
        return next(number for number, one in enumerate(known) if one is optimizer)

    def after(self, optimizer: TorchOptimizer) -> None:
        """A step has ended."""
        recorder, held = self.recorder, self.held.get(optimizer)
        if held is None or held.pending is None or not recorder.alive:
            return
        with recorder.ours:
            values = {key: _own_part(one) for key, one in keyed(optimizer).items()}
            if held.closure:
                self._gradients(held.pending, keyed(optimizer))
            if recorder.detailed:
                held.pending["after"] = recorder.digests(list(values), list(values.values()))
            if recorder.keeps:
                held.pending["param_tensors"] = {key: recorder.keep(one) for key, one in values.items()}
        recorder.emit(Step(optimizer=held.number, number=held.steps, **held.pending))
        held.pending = None
        held.steps += 1
        recorder.stepped(held.number)

    def built(self, optimizer: TorchOptimizer) -> None:
        """The models whose parameters it holds are watched from now on, before their first forward."""
        if not self.recorder.alive:
            return
        if all(optimizer is not one for one in self.recorder.optimizers):
            self.recorder.optimizers.append(optimizer)
        with self.recorder.ours:
            mine = {id(one) for one in keyed(optimizer).values()}
            for root in list(self.models.roots()):
                if any(id(one) in mine for one in torch.nn.Module.parameters(root)):
                    self.models.know(root)

    def _introduce(self, optimizer: TorchOptimizer, held: Held, parameters: dict[str, Tensor]) -> None:
        facts = tuple((id(one), one.requires_grad, one.dtype) for one in parameters.values())
        # Names change without the parameters when a module is replaced: looked at in steps 0, 1, 2, 4, 8 ...
        if facts == held.facts and held.steps & (held.steps - 1):
            return
        held.facts = facts
        if held.told is None:
            self.built(optimizer)
        event = self._description(optimizer, held, parameters)
        if held.told is None or _facts(held.told) != _facts(event):
            held.told = event
            self.recorder.emit(event)

    def _description(self, optimizer: TorchOptimizer, held: Held, parameters: dict[str, Tensor]) -> Optimizer:
        names = self._names()
        wraps = [self.models.at_wrap.get(id(one)) for one in parameters.values()]
        wraps = [
            wrap if wrap is not None and wrap.reference() is one else None
            for wrap, one in zip(wraps, parameters.values(), strict=True)
        ]
        return Optimizer(
            optimizer=held.number,
            kind=type(optimizer).__name__,
            keys=tuple(parameters),
            names=tuple(names.get(id(one), "") for one in parameters.values()),
            numel=tuple(one.numel() for one in parameters.values()),
            wrapped=tuple(-1 if wrap is None else wrap.model for wrap in wraps),
            trainable=tuple(one.requires_grad for one in parameters.values()),
            frozen_at_wrap=tuple(wrap is not None and wrap.frozen for wrap in wraps),
            dtype_at_wrap=tuple("" if wrap is None else wrap.dtype for wrap in wraps),
            dtype=tuple(str(one.dtype).removeprefix("torch.") for one in parameters.values()),
            sharded=tuple(
                type(one).__name__ == "DTensor" or type(one.data).__name__ == "DTensor" for one in parameters.values()
            ),
        )

    def _names(self) -> dict[int, str]:
        return {
            id(one): f"{known.number}:{clean(name)}"
            for known in self.models.known.values()
            for name, one in unwrapped(known.module).named_parameters()
        }


def keyed(optimizer: TorchOptimizer) -> dict[str, Tensor]:
    """{`group/index`: parameter} in the optimizer's order."""
    return {
        f"{number}/{index}": one
        for number, group in enumerate(optimizer.param_groups)
        for index, one in enumerate(group["params"])
    }


def _number(lr: Any) -> float:
    return float("nan") if lr is None else float(lr)  # some find their own rate


def _own_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a sharded tensor; any other tensor itself."""
    value: Any = tensor
    own: Tensor = value.detach().to_local() if hasattr(value, "to_local") else value
    return own


def _norm(tensor: Tensor) -> Tensor:
    value = tensor.detach()
    if value.is_sparse:
        value = value.coalesce().values()
    elif value.layout is not torch.strided:
        value = value.to_dense()
    norm: Tensor = torch.linalg.vector_norm(value.to(torch.complex128 if value.is_complex() else torch.float64)).cpu()
    return norm


def _facts(event: Optimizer) -> tuple[Any, ...]:
    return event.keys, event.names, event.wrapped, event.trainable, event.dtype


def install(recorder: Recorder, models: Models) -> Optimizers:
    """Hook the step of every optimizer that is built on torch's."""
    hooks = Optimizers(recorder, models)
    recorder.patch(TorchOptimizer, "__init__", lambda original: _init(original, hooks))
    register_optimizer_step_pre_hook(
        lambda optimizer, args, kwargs: hooks.before(optimizer, any(map(callable, [*args[1:], *kwargs.values()])))
    )
    register_optimizer_step_post_hook(lambda optimizer, args, kwargs: hooks.after(optimizer))
    return hooks


def _init(original: Callable[..., None], hooks: Optimizers) -> Callable[..., None]:
    def init(optimizer: TorchOptimizer, *args: Any, **kwargs: Any) -> None:
        original(optimizer, *args, **kwargs)
        hooks.built(optimizer)

    return init
