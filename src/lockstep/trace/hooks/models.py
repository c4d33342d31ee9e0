"""Models: wraps, forwards, backwards, and at full detail what every module returned."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from lockstep.trace.batches import leaves
from lockstep.trace.events import Backward, Buffers, Forward, GradCall, Loaded, Model, Module, NoSync, Wrap
from lockstep.trace.hooks import own_forward
from lockstep.trace.hooks.collectives import unseen
from lockstep.trace.hooks.modules import autocast, clean, first_parameter, is_wrapper, synchronised, unwrapped
from lockstep.trace.hooks.own_forward import Hook
from lockstep.trace.hooks.randomness import random_state
from lockstep.trace.recorder import TENSOR_BYTES, Recorder

_OUTPUTS = 3  # steps in which module outputs are kept
RESERVED = TENSOR_BYTES * 3 // 4
"""Bytes that outputs leave for gradients and weights, without which nothing can be compared."""
_inside = threading.local()  # depth of calls of wrappers, and of roots


@dataclass
class Known:
    """A root model, and how its parameters were when it was wrapped."""

    number: int
    module: nn.Module
    wrapper: weakref.ref[nn.Module] | None = None
    trained: bool = False
    calls: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AtWrap:
    """A parameter at the wrap of its model."""

    model: int
    reference: weakref.ref[nn.Parameter]
    frozen: bool
    dtype: str


class Models:
    """The root models of this process. A root holds parameters and is held by no other module but a wrapper."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.all: dict[int, weakref.ref[nn.Module]] = {}
        self.known: dict[int, Known] = {}
        self.at_wrap: dict[int, AtWrap] = {}
        self.wrappers: list[nn.Module] = []
        recorder.at_end.append(lambda: self.tell_buffers("end"))

    def met(self, module: nn.Module) -> None:
        """A module has come to be."""
        key, every = id(module), self.all
        every[key] = weakref.ref(
            module, lambda reference: every.pop(key, None) if every.get(key) is reference else None
        )

    def roots(self) -> Iterator[nn.Module]:
        """All root models alive."""
        alive = [module for reference in list(self.all.values()) if (module := reference()) is not None]
        held = {id(child) for one in alive if not is_wrapper(one) for child in one._modules.values()}
        for module in alive:
            if id(module) not in held and not is_wrapper(module) and first_parameter(module) is not None:
                yield module

    def know(self, module: nn.Module) -> Known:
        """A root by its number; it is told of when it is new."""
        module = unwrapped(module)
        known = self.known.get(id(module))
        if known is not None and known.module is module:
            return known
        known = self.known[id(module)] = Known(len(self.known), module)
        norms = {name: one for name, one in module.named_modules() if isinstance(one, _BatchNorm)}
        synced = tuple(name for name, one in norms.items() if synchronised(one))
        self.recorder.emit(
            Model(
                model=known.number,
                kind=type(module).__name__,
                names=tuple(clean(name) for name, _ in module.named_parameters()),
                buffers=tuple(clean(name) for name, _ in module.named_buffers()),
                batch_norms=tuple(clean(name) for name in norms if name not in synced),
                sync_batch_norms=tuple(clean(name) for name in synced),
            )
        )
        self._watch(known)
        return known

    def _watch(self, known: Known) -> None:
        for follow in self.recorder.watch_models:
            follow(known.module)
        if isinstance(known.module, torch.jit.ScriptModule):  # takes no hooks
            return
        known.module.register_forward_pre_hook(Hook(self._root_called(known)), with_kwargs=True)
        for child in known.module.children():
            if not isinstance(child, torch.jit.ScriptModule):
                child.register_forward_pre_hook(Hook(self._child_called(known)))
        if self.recorder.keeps:
            for name, module in known.module.named_modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    module.register_forward_hook(Hook(self._returned(known, clean(name))))

    def _root_called(self, known: Known) -> Callable[..., None]:
        def called(module: nn.Module, args: Any, kwargs: Any) -> None:
            if not torch.compiler.is_compiling() and not _depth("wrapper"):
                self.forward(known, "plain" if known.wrapper is None else "inner", args, kwargs)

        return called

    def _child_called(self, known: Known) -> Callable[..., None]:
        def called(module: nn.Module, args: Any) -> None:
            if torch.compiler.is_compiling() or known.wrapper is None or _depth("wrapper"):
                return
            if known.calls.get("") != self.recorder.step:  # the root itself has told it already
                self.forward(known, "inner", (), {})

        return called

    def _returned(self, known: Known, name: str) -> Callable[..., None]:
        def returned(module: nn.Module, args: Any, output: Any) -> None:
            recorder = self.recorder
            value = next((one for _, one in leaves(output) if isinstance(one, Tensor)), None)
            if value is None or torch.compiler.is_compiling() or not recorder.alive:
                return
            call = known.calls[name + "()"] = known.calls.get(name + "()", -1) + 1
            with recorder.ours:
                digest = recorder.digest(value)
                kept = recorder.keep(value, RESERVED) if recorder.step < _OUTPUTS else -1
                recorder.emit(Module(model=known.number, name=name, call=call, digest=digest, tensor=kept))

        return returned

    def forward(self, known: Known, via: str, args: Any, kwargs: Any, sync: bool = True) -> None:
        """A root is called."""
        for follow in self.recorder.before_forward:
            follow()
        with self.recorder.ours:
            self._tell_forward(known, via, (args, kwargs), sync)

    def _tell_forward(self, known: Known, via: str, given: Any, sync: bool) -> None:
        recorder, module = self.recorder, known.module
        grad, training = torch.is_grad_enabled(), module.training
        if via != "wrapper":
            known.calls[""] = recorder.step
        if not grad and known.trained:
            self.tell_buffers("eval", known)
        known.trained = grad and training
        if grad and training and recorder.detailed:
            random_state(recorder, "forward")
        inputs = "".join(recorder.digest(one)[:8] for one in _tensors(given)) if recorder.keeps else ""
        recorder.emit(
            Forward(
                model=known.number,
                via=via,
                training=training,
                grad=grad,
                sync=sync,
                inputs=inputs,
                autocast=autocast(module),
            )
        )

    def tell_buffers(self, when: str, only: Known | None = None) -> None:
        """State of the buffers of one model, or of all."""
        for known in [only] if only is not None else list(self.known.values()):
            named = {clean(name): one for name, one in known.module.named_buffers()}
            if named:
                digests = self.recorder.digests(list(named), list(named.values()))
                self.recorder.emit(Buffers(model=known.number, when=when, digests=digests))


def _tensors(value: Any) -> Iterator[Tensor]:
    return (one for _, one in leaves(value) if isinstance(one, Tensor))


def _depth(what: str) -> int:
    return int(getattr(_inside, what, 0))


@contextlib.contextmanager
def _entered(what: str) -> Iterator[None]:
    setattr(_inside, what, _depth(what) + 1)
    try:
        yield
    finally:
        setattr(_inside, what, _depth(what) - 1)


def install(recorder: Recorder) -> Models:
    """Hook nn.Module, DDP and backward."""
    models = Models(recorder)
    recorder.patch(nn.Module, "__init__", lambda original: _built(original, models))
    recorder.patch(nn.Module, "__setstate__", lambda original: _built(original, models))  # copied, or own_forward
    own_forward.install(recorder)
    recorder.patch(nn.Module, "load_state_dict", lambda original: _loading(original, models))
    recorder.patch(DistributedDataParallel, "__init__", lambda original: _wrapping(original, models))
    recorder.patch(DistributedDataParallel, "forward", lambda original: _wrapped_forward(original, models))
    recorder.patch(DistributedDataParallel, "no_sync", lambda original: _no_sync(original, models))
    recorder.patch(torch.autograd, "backward", lambda original: _backward(original, models))
    recorder.patch(torch.autograd, "grad", lambda original: _grad(original, models))
    return models


def _built(original: Callable[..., None], models: Models) -> Callable[..., None]:
    def init(module: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(module, *args, **kwargs)
        models.met(module)

    return init


def _wrapping(original: Callable[..., None], models: Models) -> Callable[..., None]:
    def init(wrapper: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        recorder = models.recorder
        named, start = {}, {}
        with recorder.ours:
            named = {clean(name): one for name, one in module.named_parameters()}
            start = recorder.digests(list(named), list(named.values()))
            random_state(recorder, "wrap")
        recorder.flush()
        with unseen():
            original(wrapper, module, *args, **kwargs)
        known = models.know(module)
        known.wrapper = weakref.ref(wrapper)
        # Destroyed after its process group, as a local of `main` is, a wrapper can hang or abort. So it stays.
        models.wrappers.append(wrapper)
        for one in named.values():
            models.at_wrap[id(one)] = AtWrap(
                known.number, weakref.ref(one), not one.requires_grad, str(one.dtype).removeprefix("torch.")
            )
        ddp: Any = wrapper
        recorder.emit(
            Wrap(
                model=known.number,
                kind="ddp",
                group_size=ddp.process_group.size(),
                find_unused=bool(ddp.find_unused_parameters),
                static_graph=bool(ddp.static_graph),
                broadcast_buffers=bool(ddp.broadcast_buffers),
                bucket_view=bool(ddp.gradient_as_bucket_view),
                start=start,
            )
        )

    return init


def _wrapped_forward(original: Callable[..., Any], models: Models) -> Callable[..., Any]:
    def forward(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(wrapper, *args, **kwargs)
        known = models.know(wrapper.module)
        models.forward(known, "wrapper", args, kwargs, sync=bool(wrapper.require_backward_grad_sync))
        models.recorder.flush()
        with _entered("wrapper"):
            try:
                return original(wrapper, *args, **kwargs)
            except BaseException as error:
                models.recorder.raised("forward", error)
                raise

    return forward


def _no_sync(original: Callable[..., Any], models: Models) -> Callable[..., Any]:
    @contextlib.contextmanager
    def no_sync(wrapper: Any) -> Iterator[None]:
        number = models.know(wrapper.module).number
        models.recorder.emit(NoSync(model=number, what="enter"))
        with original(wrapper):
            yield
        models.recorder.emit(NoSync(model=number, what="exit"))

    return no_sync


def _backward(original: Callable[..., Any], models: Models) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not models.recorder.alive:
            return original(tensors, *args, **kwargs)
        if not isinstance(tensors, Tensor | list | tuple):
            tensors = tuple(tensors)  # an iterator is read once only
        with models.recorder.ours:
            if models.recorder.detailed:
                random_state(models.recorder, "backward")
            models.recorder.emit(_told_backward(tensors, args, kwargs, models))
        models.recorder.flush()
        try:
            return original(tensors, *args, **kwargs)
        except BaseException as error:
            models.recorder.raised("backward", error)
            raise

    return backward


def _told_backward(tensors: Any, args: Any, kwargs: Any, models: Models) -> Backward:
    loss = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
    # On a GPU a value would wait for all that is queued; only a full recording pays that.
    ready = (
        isinstance(loss, Tensor)
        and loss.numel() == 1
        and not loss.is_meta
        and not loss.is_complex()
        and (loss.device.type == "cpu" or models.recorder.full)
    )
    flags = {
        str(known.number): bool(wrapper.require_backward_grad_sync)
        for known in models.known.values()
        if known.wrapper is not None and (wrapper := known.wrapper()) is not None
    }
    retain = kwargs.get("retain_graph", args[1] if len(args) > 1 else None)
    return Backward(loss=float(loss.detach()) if loss is not None and ready else None, retain=bool(retain), flags=flags)


def _grad(original: Callable[..., Any], models: Models) -> Callable[..., Any]:
    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and models.recorder.alive:
            inputs = inputs if isinstance(inputs, Tensor) else tuple(inputs)  # an iterator is read once only
            with models.recorder.ours:
                _tell_grad(models, [inputs] if isinstance(inputs, Tensor) else inputs)
        return original(outputs, inputs, *args, **kwargs)

    return grad


def _tell_grad(models: Models, inputs: Iterable[Any]) -> None:
    found: dict[int, list[str]] = {}
    for one in inputs:
        wrap = models.at_wrap.get(id(one))
        if wrap is not None and wrap.reference() is one:
            found.setdefault(wrap.model, []).append(_name_of(models, wrap.model, one))
    for model, names in found.items():
        models.recorder.emit(GradCall(model=model, names=tuple(names)))


def _name_of(models: Models, model: int, parameter: Tensor | None) -> str:
    module = next(known.module for known in models.known.values() if known.number == model)
    return next((clean(name) for name, one in module.named_parameters() if one is parameter), "")


def _loading(original: Callable[..., Any], models: Models) -> Callable[..., Any]:
    def load(module: nn.Module, state: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(module, state, *args, **kwargs)
        except BaseException as error:
            models.recorder.raised("load", error)
            raise
        with models.recorder.ours:
            strict = bool(kwargs.get("strict", args[0] if args else True))
            models.recorder.emit(_loaded(models, module, state, strict))
        return result

    return load


def _loaded(models: Models, module: nn.Module, state: Mapping[str, Any], strict: bool) -> Loaded:
    wanted = module.state_dict(keep_vars=True).keys()
    known = models.known.get(id(unwrapped(module)))
    return Loaded(
        what="module",
        model=known.number if known is not None else -1,
        matched=len(wanted & state.keys()),
        given=len(state),
        wanted=len(wanted),
        strict=strict,
    )
