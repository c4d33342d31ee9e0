"""Operations are judged one by one: the first that makes what did not go in."""

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.runtime.triage.finding import Finding
from lockstep.runtime.triage.watch import Watch

ONE = torch.ones(2, 3)


class Code(nn.Module):
    def __init__(self, code: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.code = nn.Linear(3, 3), nn.Linear(3, 3), code

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.code(self.first(x)))


def found(code: Callable[[Tensor], Tensor], x: Tensor = ONE) -> Finding | None:
    model = Code(code)
    with torch.no_grad():
        model.last.weight.abs_()  # the sign of a gradient that is infinite is then the same each time
    with Watch(model) as watch:
        with watch.forward():
            loss = model(x).sum()
        watch.judged(loss)
        torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return watch.found


def masked(x: Tensor) -> Tensor:
    scores = x + torch.full((2, 3), -math.inf).triu(1)  # a mask as attention has it: right
    return torch.log(torch.softmax(scores, 1).relu() * 0 - 1)


def garbage(x: Tensor) -> Tensor:
    memory = torch.empty(2, 3)
    memory.fill_(math.inf)
    return x + memory


@pytest.mark.parametrize(
    ("code", "direction", "operation", "value"),
    [
        (lambda x: (x * 0).log(), "forward", "log", "-inf"),
        (lambda x: -(x * 0).log(), "forward", "log", "-inf"),
        (lambda x: (x * 0) / (x * 0), "forward", "div", "nan"),
        (lambda x: x.masked_fill(x < 1e9, math.nan), "forward", "masked_fill", "nan"),
        (lambda x: torch.exp(x * 0 + 1000), "forward", "exp", "inf"),
        (masked, "forward", "log", "nan"),
        (lambda x: torch.softmax(x * 0 + torch.full((3,), -math.inf), 1), "forward", "softmax", "nan"),
        (lambda x: (x * 0).sqrt(), "backward", "sqrt", "inf"),
        (lambda x: torch.where(x < 1e9, x, (x * 0 - 1).sqrt()), "backward", "sqrt", "nan"),
        (lambda x: (x - x.detach()).abs().pow(0.5), "backward", "pow", "inf"),
    ],
)
def test_the_first_operation_at_fault(
    code: Callable[[Tensor], Tensor], direction: str, operation: str, value: str
) -> None:
    one = found(code)
    assert one is not None
    assert (one.direction, one.operation) == (direction, operation)
    assert one.value == value
    assert (one.module, one.kind) == ("", "Code")
    assert "test_watch.py:" in one.line
    assert one.feeds == ("first",) or operation in ("log", "div", "exp", "sqrt", "softmax", "pow")


def test_a_sound_model_has_no_finding() -> None:
    assert found(lambda x: torch.softmax(x + torch.full((2, 3), -math.inf).triu(1), 1)) is None
    assert found(lambda x: torch.where(x < 1e9, x, x.detach().mul(0).log())) is None


def test_what_comes_from_outside_is_nobodys_fault() -> None:
    assert found(lambda x: x, torch.full((2, 3), math.nan)) is None


def test_what_no_operation_shows_is_labelled_by_its_node() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: object, *grads: Tensor) -> Tensor:
            return grads[0] * math.nan

    one = found(Wrong.apply)
    assert one is not None
    assert (one.direction, one.operation, one.module) == ("backward", "wrong", "")
    assert one.feeds == ("first",)


def test_memory_that_nobody_has_written_is_no_fault() -> None:
    one = found(garbage)
    assert one is None or one.operation != "empty"


def test_nothing_of_the_graph_is_kept() -> None:
    class Held:
        """Stands for what a graph holds in memory."""

    class Holds(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.held = Held()
            alive.append(weakref.ref(ctx.held))
            return x * 1

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return grads[0]

    alive: list[weakref.ref[Held]] = []
    assert found(Holds.apply) is None
    gc.collect()
    assert [ref() for ref in alive] == [None]
