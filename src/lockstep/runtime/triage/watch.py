"""Watches forward and backward operation by operation, and keeps the first that makes a value that is not finite."""

import linecache
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.distributed.fsdp import FSDPModule
from torch.overrides import TorchFunctionMode

from lockstep.runtime.state.tensors import clean_name
from lockstep.runtime.triage.finding import Finding
from lockstep.runtime.triage.values import fault, floats_in, largest, numbers_in

_DISTRIBUTED = str(Path(torch.__file__).parent / "distributed")
_NOT_THE_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


@dataclass(frozen=True)
class Label:
    """Where a node of the autograd graph comes from: module (None: the loss), its class, operation, file and line."""

    module: str | None
    kind: str
    operation: str
    place: tuple[str, int]


class Watch:
    """Enter it around forward and backward of a model; `found` is then the first finding.

    An operation is at fault whose output is not finite though what went in was. Two are so only where nothing else is
    found: one that makes -inf, which may be a mask, and one that writes a number of the code itself, such as
    `masked_fill(mask, -inf)`.

    Args:
        model: the unwrapped model. Its modules get hooks, which go when the block is left.
    """

    def __init__(self, model: nn.Module) -> None:
        self.found: Finding | None = None
        self._model = model
        self._masked: Finding | None = None
        self._written: Finding | None = None
        self._over = False
        self._stack: list[tuple[str, str]] = []
        self._labels: dict[Node, Label] = {}
        self._leaving = ExitStack()

    def __enter__(self) -> "Watch":
        for name, module in self._model.named_modules():
            own = clean_name(name), class_name(module)
            for handle in (
                module.register_forward_pre_hook(self._enters(own), with_kwargs=True),
                module.register_forward_hook(self._leaves(own), always_call=True),
            ):
                self._leaving.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.close()
        self._labels.clear()
        self._stack.clear()

    def forward(self) -> "Operations":
        """Enter it around each forward, with the loss."""
        self._stack.clear()
        self._labels.clear()
        return Operations(self)

    def judged(self, loss: Tensor) -> bool:
        """Take the loss of a forward into account, before its backward; whether it is finite.

        With a finite loss, what the forward made was masked out, and only gradients can be at fault. With another one
        nothing more is looked for; where nothing was found, the first -inf is it after all.
        """
        finite = not fault(loss)
        self.found = None if finite else self.found or self._masked or self._written
        self._masked, self._written, self._over = None, None, not finite
        self._label([loss], Label(None, "", "", ("", 0)))
        return finite

    def _enters(self, own: tuple[str, str]) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.gets((args, kwargs))  # they were made by the code around it
            self._stack.append(own)

        return enter

    def _leaves(self, own: tuple[str, str]) -> Callable[..., None]:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            # A recomputation that stops early leaves modules without a word.
            while self._stack and self._stack.pop() != own:
                pass
            self._label([output], Label(*own, "", ("", 0)))

        return leave

    @property
    def searching(self) -> bool:
        """Whether nothing is found yet."""
        return self.found is None and not self._over

    def gets(self, values: Any) -> None:
        """Label what no operation has shown, such as the node of a Function of the user's own."""
        module, kind = self._stack[-1] if self._stack else (None, "")
        self._label(values, Label(module, kind, "", ("", 0)))

    def ran(self, name: str, inputs: "Inputs", result: Any, place: tuple[str, int]) -> None:
        """Judge one operation of the forward.

        Args:
            name: of the operation.
            inputs: what was seen before it ran.
            result: what it returned.
            place: file and line of the user's call.
        """
        module, kind = self._stack[-1] if self._stack else (None, "")
        if self.searching and name not in _UNINITIALISED:
            self._judge(Label(module, kind, name, place), inputs, result)
        self._label([result], Label(module, kind, name, place))

    def _judge(self, label: Label, inputs: "Inputs", result: Any) -> None:
        for _, tensor in floats_in(result):
            value = fault(tensor)
            if not value or inputs.fault in ("nan", "inf") or (inputs.fault and value == "-inf"):
                continue
            grows = inputs.largest, inputs.fault or inputs.written
            found = _finding("forward", label, value, tensor, *grows, self._makers(inputs.nodes))
            if inputs.written and not inputs.fault:
                self._written = self._written or found
            elif value == "-inf":
                self._masked = self._masked or found
            else:
                # What works on a computed -inf passes it on. Softmax of a masked row does not: that -inf was written.
                self.found = self._masked if inputs.fault and self._masked else found
                return

    def _makers(self, nodes: Iterable[Node]) -> tuple[str, ...]:
        """The modules that made the given nodes, each once."""
        labels = [self._labels[node] for node in nodes if node in self._labels]
        return tuple(dict.fromkeys(label.module for label in labels if label.module))

    def _label(self, values: Any, label: Label) -> None:
        """Give every node behind these values that has none yet its label, and watch its backward."""
        waiting = [t.grad_fn for _, t in floats_in(values) if t.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node in self._labels or node.name().endswith("AccumulateGrad"):
                continue
            self._labels[node] = label
            node.register_hook(self._behind(node, label))
            waiting += [behind for behind, _ in node.next_functions if behind is not None]

    def _behind(self, node: Node, label: Label) -> Callable[..., None]:
        # Not the node itself, which holds this hook: nobody would free the two.
        name, next_ones = node.name(), [behind for behind, _ in node.next_functions if behind is not None]

        def hook(into: tuple[Tensor | None, ...], out_of: tuple[Tensor | None, ...]) -> None:
            """`out_of`: the gradients that came; `into`: those that the node makes of them."""
            if not self.searching or any(fault(g) for g in out_of if isinstance(g, Tensor)):
                return
            for grad in into:
                if isinstance(grad, Tensor) and (value := fault(grad)):
                    most = largest(g for g in out_of if isinstance(g, Tensor))
                    feeds = self._makers(next_ones)
                    named = label if label.operation else _with_operation(label, name)
                    self.found = _finding("backward", named, value, grad, most, "", feeds)
                    return

        return hook


@dataclass(frozen=True)
class Inputs:
    """What goes into an operation.

    Attributes:
        fault: the worst that its tensors hold.
        written: the worst of the plain numbers.
        largest: the largest number in its tensors.
        nodes: those that made them.
    """

    fault: str
    written: str
    largest: float
    nodes: tuple[Node, ...]


class Operations(TorchFunctionMode):
    """Shows every operation of a forward to a watch."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        caller = sys._getframe(1)
        # What sharding does to gather parameters is none of the model's operations, and its memory comes and goes.
        if name in _LOOKS or caller.f_code.co_filename.startswith(_DISTRIBUTED):
            return func(*args, **kwargs)
        given = (args, kwargs)
        tensors = [tensor for _, tensor in floats_in(given)]
        searching = self.watch.searching
        self.watch.gets(given)
        inputs = Inputs("", "", 0.0, ())
        if searching:
            nodes = tuple(t.grad_fn for t in tensors if t.grad_fn is not None)
            held, written = _worst(map(fault, tensors)), _worst(map(_number_fault, numbers_in(given)))
            inputs = Inputs(held, written, largest(iter(tensors)), nodes)
        result = func(*args, **kwargs)
        # Assignment to a part returns nothing and changes its first argument.
        self.watch.ran(name, inputs, args[:1] if result is None else result, _users_place(caller))
        return result


# Memory that nobody has written yet may hold anything; the others return no new numbers.
_UNINITIALISED = frozenset(("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "resize_"))
_LOOKS = frozenset(
    ("__get__", "__set__", "dim", "size", "stride", "numel", "is_floating_point", "requires_grad_", "data")
)


def class_name(module: nn.Module) -> str:
    """The user's name of a module's class: sharding puts a class of its own before it."""
    kinds = type(module).__mro__
    return kinds[2].__name__ if isinstance(module, FSDPModule) and len(kinds) > 2 else kinds[0].__name__


def _worst(faults: Iterable[str]) -> str:
    found = set(faults)
    return next((one for one in ("nan", "inf", "-inf") if one in found), "")


def _number_fault(number: float) -> str:
    if number != number:
        return "nan"
    return {float("inf"): "inf", float("-inf"): "-inf"}.get(number, "")


def _with_operation(label: Label, node: str) -> Label:
    return Label(label.module, label.kind, node.removesuffix("0").removesuffix("Backward").lower(), label.place)


def _finding(
    direction: Any, label: Label, value: str, where: Tensor, most: float, given: str, feeds: tuple[str, ...]
) -> Finding:
    dtype = str(where.dtype).removeprefix("torch.")
    file, line = label.place
    code = linecache.getline(file, line).strip() if file else ""
    shown = f"{_short(file)}:{line}: {code}" if file else ""
    operation = label.operation.strip("_")
    return Finding(direction, label.module, label.kind, operation, value, dtype, most, shown, given, feeds)


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _users_place(frame: FrameType | None) -> tuple[str, int]:
    """File and line of the innermost frame that is neither torch's nor the runtime's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS) and not file.startswith("<"):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0
