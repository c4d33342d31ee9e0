"""Gradients that a rank does not have, under FSDP2: zeros in their place before the ranks' gradients are added.

`fully_shard` reduces the gradients of a unit in one call, and takes only those that there are. Where a branch leaves a
parameter out on one rank, the ranks would call with different sizes. Here an identity at a unit's inputs looks, in
backward, at what the unit's backward has not reached, just before the unit is reduced; what has no such input is
looked at before the reduction that ends the backward.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_flatten, tree_unflatten


class Filling:
    """Fills in what is missing, and remembers what was.

    Args:
        model: its parameters, by name, are what may be missing.
        units: modules that are sharded by themselves; their hooks for sharding are there already.

    Attributes:
        had: names of the parameters that this rank had a gradient for in the last step.
        active: whether this backward is the one whose gradients are reduced.
    """

    def __init__(self, model: nn.Module, units: Mapping[str, nn.Module]) -> None:
        self.had: set[str] = set()
        self._zeros: dict[str, Tensor] = {}
        self.active = True
        self._all = _slots(model, "")
        for name, unit in units.items():
            unit.register_forward_pre_hook(_Inputs(partial(self.fill, _slots(unit, f"{name}."))), with_kwargs=True)

    def start(self, loss: Tensor, last: bool) -> Tensor:
        """Call before each backward; returns the loss to call it on."""
        self.active = last
        self.had.clear()
        if not last:
            return loss
        # Queued before the wrapper's own callback: a tensor behind the outputs, whose hooks run first.
        begun = loss.clone()
        begun.register_hook(self._at_start)
        return begun

    def end(self) -> None:
        """Call after each backward."""
        self._zeros.clear()

    def _at_start(self, grad: Tensor) -> None:
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(partial(self.fill, self._all))

    def fill(self, slots: list["_Slot"]) -> None:
        """Zeros for the gathered parameters of these places that have no gradient."""
        if not self.active:
            return
        for name, module, own in slots:
            param = module._parameters[own]
            if param is None or isinstance(param, DTensor) or not param.requires_grad:
                continue
            # Of a unit that is called twice the gradient comes whole, at its first call, which is the last in backward.
            if param.grad is None:
                param.grad = self._zeros[name] = torch.zeros_like(param)
            elif param.grad is not self._zeros.get(name) or param.grad._version:
                self.had.add(name)


_Slot = tuple[str, nn.Module, str]


def _slots(root: nn.Module, prefix: str) -> list[_Slot]:
    """The place of each parameter: its name, its module and its name there. Who stands in it changes in a step."""
    return [
        (f"{prefix}{path}.{own}" if path else f"{prefix}{own}", module, own)
        for path, module in root.named_modules()
        for own, param in module._parameters.items()
        if param is not None
    ]


class _Inputs:
    """Forward pre-hook that puts the identity before every tensor input of a unit."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not torch.is_grad_enabled():
            return None
        # The wrapper reduces a unit at its inputs, however deep they lie in lists and mappings.
        values, structure = tree_flatten((args, kwargs))
        places = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
        if not places:
            return None
        seen: tuple[Tensor, ...] = _Before.apply(self.then, *(values[i] for i in places))  # type: ignore[no-untyped-call]
        for i, value in zip(places, seen, strict=True):
            values[i] = value
        return tree_unflatten(values, structure)


class _Before(torch.autograd.Function):
    """The identity; its backward calls a function first."""

    @staticmethod
    def forward(ctx: Any, then: Callable[[], None], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.then = then
        return tuple(value.view_as(value) for value in inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.then()
        return (None, *grads)
