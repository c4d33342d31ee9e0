"""Hooks of ours on the user's modules, which a copy, a file or a compiled module must not have."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from lockstep.trace.recorder import Recorder

_NONE: Mapping[Any, Any] = {}
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


class Hook:
    """A forward hook of ours. Where a model is copied or pickled with it, the copy's does nothing."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        """As torch calls it."""
        self._call(*args)

    def __reduce__(self) -> Any:
        return Hook, (_nothing,)


def _nothing(*args: Any) -> None:
    pass


def without_hooks(state: dict[str, Any]) -> dict[str, Any]:
    """A module's `__dict__` as it is without hooks of ours."""
    ours = {key for name in _HOOKS[:2] for key, hook in state.get(name, _NONE).items() if isinstance(hook, Hook)}
    if not ours:
        return state
    kept = {
        name: type(state[name])((key, one) for key, one in state[name].items() if key not in ours)
        for name in _HOOKS
        if name in state
    }
    return {**state, **kept}


def install(recorder: Recorder) -> None:
    """Hook what copies, pickles and compiles modules."""
    recorder.patch(nn.Module, "__getstate__", _bare)
    recorder.patch(torch.jit, "script", _scripting)


def _bare(original: Callable[..., Any]) -> Callable[..., Any]:
    def getstate(module: nn.Module) -> Any:
        state = original(module)
        return without_hooks(state) if isinstance(state, dict) else state

    return getstate


def _scripting(original: Callable[..., Any]) -> Callable[..., Any]:
    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        modules = list(obj.modules()) if isinstance(obj, nn.Module) else []
        held = [(vars(one), {name: vars(one)[name] for name in _HOOKS if name in vars(one)}) for one in modules]
        for state, _ in held:
            state.update(without_hooks(state))
        try:
            return original(obj, *args, **kwargs)
        finally:
            for state, hooks in held:
                state.update(hooks)

    return script
