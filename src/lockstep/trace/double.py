"""A program in float64, with randomness that does not depend on how a batch is cut."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lockstep.trace.feed import Slice

_LOW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}
_DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
}
_SIZED = {torch.rand, torch.randn, torch.randint}
_LIKE = {torch.rand_like, torch.randn_like, torch.randint_like, torch.bernoulli}
_IN_PLACE = {
    Tensor.normal_,
    Tensor.uniform_,
    Tensor.random_,
    Tensor.bernoulli_,
    Tensor.exponential_,
    Tensor.log_normal_,
}


class Double(TorchFunctionMode):
    """float64 for every tensor that the script makes, and no dropout.

    rows: the rows of the reference's batch that this rank has; a random tensor with as many rows is drawn for the
    whole batch and cut, so that N ranks draw together what one process draws. None leaves draws alone.
    """

    def __init__(self, rows: Callable[[], Slice] | None) -> None:
        super().__init__()
        self._rows = rows

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of its own."""
        kwargs = kwargs or {}
        if func in _CASTS:
            return args[0].double()
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        args = tuple(_high(one) for one in args)
        kwargs = {key: 0.0 if key == "dropout_p" else _high(one) for key, one in kwargs.items()}
        result = self._drawn(func, args, kwargs)
        if isinstance(result, Tensor) and result.dtype in _LOW and not _is_view_of(result, args):
            return result.double()
        return result

    def _drawn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        place = self._rows() if self._rows is not None else Slice()
        mine = place.end - place.start
        if place.total <= mine or func not in _SIZED | _LIKE | _IN_PLACE:
            return func(*args, **kwargs)
        if func in _SIZED:
            whole = _resized(func, args, kwargs, mine, place.total)
            return func(*args, **kwargs) if whole is None else func(*whole[0], **whole[1])[place.start : place.end]
        if not args:
            kwargs = dict(kwargs)
            args = (kwargs.pop("input"),)
        tensor = args[0]
        if tensor.dim() == 0 or tensor.shape[0] != mine:
            return func(*args, **kwargs)
        if func is torch.bernoulli:
            return (torch.rand((place.total, *tensor.shape[1:]))[place.start : place.end] < tensor).to(tensor.dtype)
        stand_in = tensor.detach().new_empty((place.total, *tensor.shape[1:]))
        drawn = func(stand_in, *args[1:], **kwargs)[place.start : place.end]
        return drawn if func in _LIKE else tensor.copy_(drawn)


def _high(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _LOW else value


def _is_view_of(result: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether a tensor that the script already had is handed back: a copy would cut it off."""
    return any(one is result for one in args)


def _resized(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mine: int, total: int
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call that draws `mine` rows, for `total` rows; None where it draws another number."""
    if "size" in kwargs:
        size = tuple(kwargs["size"])
        return (args, {**kwargs, "size": (total, *size[1:])}) if size[:1] == (mine,) else None
    for index, one in enumerate(args):
        if isinstance(one, tuple | list):
            if tuple(one)[:1] != (mine,):
                return None
            return (*args[:index], (total, *one[1:]), *args[index + 1 :]), kwargs
    if func is not torch.randint and args and args[0] == mine and all(isinstance(one, int) for one in args):
        return (total, *args[1:]), kwargs
    return None


def without_dropout(model: nn.Module) -> None:
    """Layers that hand their rate to C++ are given rate 0."""
    for module in model.modules():
        for name in ("dropout", "p", "drop_prob"):
            rate = module.__dict__.get(name)
            if isinstance(rate, float) and 0 < rate < 1 and (name != "p" or "Drop" in type(module).__name__):
                setattr(module, name, 0.0)


def enter(rows: Callable[[], Slice] | None) -> None:
    """From now on, for the whole process."""
    torch.set_default_dtype(torch.float64)
    original = torch.from_numpy
    vars(torch)["from_numpy"] = lambda array: original(array).double() if array.dtype.kind == "f" else original(array)
    vars(torch)["FloatTensor"] = torch.DoubleTensor
    mode: Any = Double(rows)
    mode.__enter__()
