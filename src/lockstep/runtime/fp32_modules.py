"""Modules that compute in float32 while the rest of the model computes in bf16 or fp16."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.precision import Precision

_LOW = (torch.float16, torch.bfloat16)


def matching(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """The names of the modules whose name or class matches one of the patterns, in the order of the model.

    Raises:
        UserError: where a pattern matches none, with what it may have meant.
    """
    modules = {name: type(module).__name__ for name, module in model.named_modules()}
    for pattern in patterns:
        if not any(_matches(pattern, name, kind) for name, kind in modules.items()):
            raise UserError(_no_match(pattern, model, modules))
    return [name for name, kind in modules.items() if any(_matches(p, name, kind) for p in patterns)]


def compute_in_fp32(model: nn.Module, patterns: Sequence[str], precision: Precision) -> list[str]:
    """Let the matching modules, and all inside them, run without autocast on inputs cast to float32.

    Patterns are checked in every format; in fp32 and fp64 there is nothing to change. Call it before the model is
    wrapped, sharded or compiled.

    Args:
        model: the model, unwrapped.
        patterns: of `precision.fp32_modules`.
        precision: the format of the run.

    Returns:
        The names of the modules that matched.

    Raises:
        UserError: where a pattern matches nothing.
    """
    names = matching(model, patterns)
    if precision.low:
        for name in names:
            _change(model.get_submodule(name), precision.device.type)
    return names


@contextmanager
def temporarily_in_fp32(model: nn.Module, names: Iterable[str], precision: Precision) -> Iterator[None]:
    """Modules by their exact names run in float32 inside the block."""
    undo = [_change(model.get_submodule(name), precision.device.type) for name in names]
    try:
        yield
    finally:
        for put_back in reversed(undo):
            put_back()


def _change(module: nn.Module, device: str) -> Callable[[], None]:
    """Give the instance a forward of its own; returns what takes it away again.

    Not a pair of hooks: a block that is left in every way out, and that torch.compile can follow.
    """
    own = vars(module).get("forward")
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, enabled=False):
            return inner(*_raised(args), **_raised(kwargs))

    vars(module)["forward"] = forward

    def put_back() -> None:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own

    return put_back


def _raised(value: Any) -> Any:
    """The same with tensors of a lower format in float32, also inside lists, tuples and mappings."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in _LOW else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_raised(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_raised(item) for item in value)
    return {key: _raised(item) for key, item in value.items()} if isinstance(value, dict) else value


def _matches(pattern: str, name: str, kind: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(kind, pattern)


def _no_match(pattern: str, model: nn.Module, modules: Mapping[str, str]) -> str:
    kinds, names = sorted(set(modules.values())), [name for name in modules if name]
    near = get_close_matches(pattern, [*names, *kinds], n=3, cutoff=0.5)
    # A name written from the end, or with the prefix that a wrapper gives.
    near += [name for name in names if name.endswith(f".{pattern}") or pattern.endswith(f".{name}")][:3]
    shown = ", ".join(dict.fromkeys(near))
    hint = f"did you mean {shown}?" if near else f"its classes are {', '.join(kinds)}"
    seen = f"precision.fp32_modules: {pattern!r} matches no module of {type(model).__name__}"
    return explain(seen, "a pattern of a module's name or class", "config", hint)
