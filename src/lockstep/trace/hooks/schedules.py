"""Learning-rate schedulers: every step of each, with the length it was declared to have; and GradScaler's scale."""

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch.amp.grad_scaler import GradScaler
from torch.optim import lr_scheduler

from lockstep.trace.events import Scaler, Schedule
from lockstep.trace.recorder import Recorder

_LENGTHS = {"num_training_steps", "total_steps", "max_steps", "max_iters", "total_iters", "num_steps", "t_total"}
"""What scripts call the length that a function of LambdaLR counts down to."""


def install(recorder: Recorder) -> None:
    """Hook the `step` of all schedulers of torch, and of the user's when one is built; and `GradScaler.update`."""
    schedules = _Schedules(recorder)
    for kind in list(vars(lr_scheduler).values()):
        if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler):
            schedules.hook(kind)
    scales: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
    recorder.patch(GradScaler, "update", lambda original: _update(original, recorder, scales))


class _Schedules:
    """The schedulers seen so far, and which of their classes are hooked."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._hooked: set[type] = set()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._counts: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        self._inside = threading.local()

    def hook(self, kind: type) -> None:
        """A class, at its own `step` and its own constructor."""
        if kind in self._hooked:
            return
        self._hooked.add(kind)
        if "step" in vars(kind):
            self._recorder.patch(kind, "step", self._step)
        if "__init__" in vars(kind):
            self._recorder.patch(kind, "__init__", self._init)

    def _init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            for kind in type(scheduler).__mro__:
                if issubclass(kind, lr_scheduler.LRScheduler):
                    self.hook(kind)
            self._within(original, scheduler, *args, **kwargs)  # its first step is its own doing

        return init

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            result, outermost = self._within(original, scheduler, *args, **kwargs)
            if outermost and self._recorder.alive:
                self._tell(scheduler, args, kwargs)
            return result

        return step

    def _within(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, bool]:
        """The result, and whether this call came from the script and not from another scheduler's."""
        depth = getattr(self._inside, "depth", 0)
        self._inside.depth = depth + 1
        try:
            return original(*args, **kwargs), depth == 0
        finally:
            self._inside.depth = depth

    def _tell(self, scheduler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            count, last = self._counts.get(scheduler, (0, 0))
            self._counts[scheduler] = count + 1, self._recorder.step
            event = Schedule(
                schedule=self._numbers.setdefault(scheduler, len(self._numbers)),
                kind=type(scheduler).__name__,
                lr=tuple(float(group["lr"]) for group in scheduler.optimizer.param_groups),
                metric=_metric(scheduler, args, kwargs),
                total=declared_length(scheduler),
                count=count + 1,
                per=self._recorder.step - last,
            )
        except Exception:
            return  # a scheduler of the user's own making need not have what torch's have
        self._recorder.emit(event)


def _metric(scheduler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float | None:
    if not isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
        return None
    return float(args[0] if args else kwargs["metrics"])


def declared_length(scheduler: Any) -> int | None:
    """For how many steps a scheduler was built, None where its arguments do not say.

    A warm-up (ConstantLR, a rising LinearLR) has a length too, but not that of the training.
    """
    match scheduler:
        case lr_scheduler.SequentialLR():
            last = declared_length(scheduler._schedulers[-1])
            return None if last is None else scheduler._milestones[-1] + last
        case lr_scheduler.ChainedScheduler():
            return max(filter(None, map(declared_length, scheduler._schedulers)), default=None)
        case lr_scheduler.CosineAnnealingLR():
            return _whole(scheduler.T_max)
        case lr_scheduler.OneCycleLR():
            return _whole(scheduler.total_steps)
        case lr_scheduler.PolynomialLR():
            return _whole(scheduler.total_iters)
        case lr_scheduler.LinearLR():
            return _whole(scheduler.total_iters) if scheduler.end_factor < scheduler.start_factor else None
        case lr_scheduler.LambdaLR():
            return max(filter(None, map(_length_of_function, scheduler.lr_lambdas)), default=None)
    return None


def _length_of_function(function: Any) -> int | None:
    """What a `partial`, a closure or a global of a telling name holds."""
    held: dict[str, Any] = dict(getattr(function, "keywords", None) or {})
    inner = getattr(function, "func", function)
    code = getattr(inner, "__code__", None)
    if code is not None:
        names = set(code.co_names)
        held |= {name: value for name, value in inner.__globals__.items() if name in names}
        for name, cell in zip(code.co_freevars, inner.__closure__ or (), strict=False):
            held[name] = cell.cell_contents
    return max(filter(None, (_whole(value) for name, value in held.items() if name.lower() in _LENGTHS)), default=None)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _update(
    original: Callable[..., Any], recorder: Recorder, scales: weakref.WeakKeyDictionary[Any, float]
) -> Callable[..., Any]:
    def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
        before = scales.get(scaler, getattr(scaler, "_init_scale", 0.0))
        result = original(scaler, *args, **kwargs)
        if recorder.alive and scaler.is_enabled():
            # Reading the scale waits for the device, as the step before it did to see whether a gradient is finite.
            scales[scaler] = scale = float(scaler.get_scale())
            recorder.emit(Scaler(scale=scale, skipped=scale < before))
        return result

    return update
