"""What is told of models: how they are called, and how their gradients come."""

import copy
import gc
import io
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.trace.events import (
    Backward,
    Buffers,
    Forward,
    GradCall,
    Loaded,
    Model,
    Module,
    NoSync,
    Optimizer,
    Raised,
    RandomState,
    Step,
    Wrap,
)
from tests.trace.recording import bare, record, record_one


def _net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))


def _sgd(*models: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for model in models for one in model.parameters()], lr=0.1, momentum=0.9)


def _step(model: Any, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()


def _grouped(work: Callable[[], Any]) -> Any:
    """`work()` within a process group; what refers to the group is gone when it is destroyed, or torch may hang."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    result = work()
    dist.destroy_process_group()
    return result


def _trained() -> tuple[dict[str, Any], list[float]]:
    """Weights, and the draws that come next."""
    model = DistributedDataParallel(_net())
    torch.manual_seed(7 + dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(4):
        if number % 2:
            with model.no_sync():
                model(torch.randn(4, 3)).sum().backward()
        _step(model, optimizer)
    with torch.no_grad():
        model.module.eval()(torch.randn(2, 3))
    state = {name: value.tolist() for name, value in model.module.state_dict().items()}
    return state, torch.rand(3).tolist()


@pytest.mark.parametrize("full", [False, True])
def test_a_script_computes_the_same_under_the_recorder(tmp_path: Path, full: bool) -> None:
    seen = record(tmp_path, _grouped, _trained, num_ranks=2, full=full)
    assert [one.result for one in seen] == bare(_grouped, _trained, num_ranks=2)
    for one in seen:
        assert len(one.of(Step)) == 4 and [event.what for event in one.of(NoSync)] == ["enter", "exit"] * 2
        assert [event.sync for event in one.of(Forward)] == [True, False, True, True, False, True, True]
        assert [event.via for event in one.of(Forward)] == ["wrapper"] * 6 + ["inner"]
        assert [event.flags for event in one.of(Backward)][:3] == [{"0": True}, {"0": False}, {"0": True}]
        assert [event.when for event in one.of(Buffers)] == ["eval", "end"]
        (wrap,) = one.of(Wrap)
        assert (wrap.group_size, wrap.model, len(wrap.start)) == (2, 0, 6)
        assert bool(one.of(Module)) is full
    first, second = (one.of(Step)[-1] for one in seen)
    assert first.after == second.after and first.grads == second.grads
    assert seen[0].of(RandomState)[-1].torch != seen[1].of(RandomState)[-1].torch


def _ways() -> None:
    wrapped, plain, unused = DistributedDataParallel(_net()), _net(), _net()
    optimizer = _sgd(wrapped, plain)
    inner, x = wrapped.module, torch.randn(4, 3)
    _step(wrapped, optimizer)
    _step(inner, optimizer)  # around the wrapper
    _step(plain, optimizer)
    _step(lambda given: inner[3](inner[0](given)), optimizer)  # child by child
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        inner.eval()(x)
    unused(x)


def test_the_way_in_which_a_model_is_called(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _grouped, _ways)
    told = [(one.model, one.via, one.training, one.grad, one.autocast) for one in seen.of(Forward)]
    assert told == [
        (0, "wrapper", True, True, ""),
        (0, "inner", True, True, ""),
        (1, "plain", True, True, ""),
        (0, "inner", True, True, ""),
        (0, "inner", False, False, "bfloat16"),
    ]
    assert [one.step for one in seen.of(Forward)] == [0, 1, 2, 3, 4]
    assert [one.batch_norms for one in seen.of(Model)] == [("1",)] * 2, "of those that are trained"
    assert seen.of(Model)[0].names == ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")


def _gradients() -> list[Any]:
    model = DistributedDataParallel(nn.Linear(2, 1))
    loss = model(torch.ones(1, 2)).sum()
    got = [tuple(one.tolist() for one in torch.autograd.grad(loss, model.parameters(), retain_graph=True))]
    torch.autograd.backward(iter([loss, loss * 2]), retain_graph=True)
    loss.backward(retain_graph=True)
    got.append(model.module.bias.grad.tolist())
    (loss * torch.ones(2)).backward(torch.tensor([1.0, 2.0]))
    weight = nn.Parameter(torch.tensor(1 + 1j))
    (weight * 2).backward(torch.tensor(1 + 0j))
    return got


def test_gradients_that_are_asked_for_in_other_ways(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _grouped, _gradients)
    assert [seen.result] == bare(_grouped, _gradients)
    (call,) = seen.of(GradCall)
    assert call.model == 0 and call.names == ("weight", "bias"), "an iterator of parameters was not used up"
    losses = [one.loss for one in seen.of(Backward)]
    assert losses[0] == losses[1] != None and losses[2:] == [None, None]  # noqa: E711
    assert [one.retain for one in seen.of(Backward)] == [True, True, False, False]


class _Stateful(nn.Module):
    """A layer that pickles itself in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def _copied() -> list[Any]:
    model = _net()
    optimizer = _sgd(model)
    _step(model, optimizer)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    loaded = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    averaged = copy.deepcopy(model)
    averaged(torch.randn(4, 3))
    torch.jit.script(model)(torch.randn(4, 3))
    own = _Stateful()
    _sgd(own)
    pickle.loads(pickle.dumps(own))(torch.randn(4, 3))
    second = _sgd(loaded)
    _step(loaded, second)
    return [len(buffer.getvalue()), [len(one._forward_pre_hooks) for one in (averaged, loaded)]]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_a_model_is_copied_saved_and_compiled_as_if_it_were_not_watched(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _copied)
    size, hooks = seen.result
    assert hooks == [0, 1], "a copy is watched from its own optimizer on"
    assert [size] == [one[0] for one in bare(_copied)]
    assert [(one.model, one.via) for one in seen.of(Forward)] == [(0, "plain"), (2, "plain")]
    assert seen.of(Optimizer)[1].names[0] == "2:0.weight"


class _Listing(nn.Module):
    """Has parameters of its own, and lists them in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 1))
        self.same = self.weight

    def parameters(self, recurse: bool = True) -> Any:
        return [self.weight]

    def state_dict(self) -> Any:  # type: ignore[override]
        return {"weight": self.weight}

    def forward(self, x: torch.Tensor | None) -> torch.Tensor:
        return self.weight.sum() if x is None else x @ self.weight


def _strange() -> list[Any]:
    listing = _Listing()
    optimizer = _sgd(listing)
    _step(listing, optimizer)
    listing(None)
    listing.load_state_dict({"weight": torch.zeros(3, 1), "same": torch.zeros(3, 1)})
    emptied = nn.Sequential(nn.Linear(3, 1))
    other = _sgd(emptied)
    del emptied[0]
    emptied(torch.ones(1))
    with torch.device("meta"):
        meta = nn.Sequential(nn.Linear(3, 1))
    third = _sgd(meta)
    meta(torch.ones(2, 3, device="meta")).sum().backward()
    third.step()
    lazy = nn.Sequential(nn.LazyLinear(2))
    lazy(torch.ones(2, 3))
    _step(lazy, _sgd(lazy))
    return [listing.weight.tolist(), len(other.param_groups)]


def test_strange_models_run_as_they_would(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _strange, full=True, trouble=True)
    assert [seen.result] == bare(_strange)
    assert [one.kind for one in seen.of(Model)] == ["_Listing", "Sequential", "Sequential", "Sequential"]
    assert seen.of(Model)[0].names == ("weight",), "one weight of two names"
    assert len(seen.of(Step)) == 3


class _Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Any) -> torch.Tensor:
        raise ZeroDivisionError(f"at {x}")


def _errors() -> list[str]:
    model, met = DistributedDataParallel(_Failing()), []
    loss = nn.Parameter(torch.ones(1)).square().sum()
    loss.backward()
    for action in (
        lambda: model(1),
        lambda: model(2),
        lambda: loss.backward(),
        lambda: model.module.load_state_dict({"wrong": torch.ones(1)}),
    ):
        try:
            action()
        except Exception as error:
            met.append(f"{type(error).__name__}: {error}")
    return met


def test_errors_pass_through_and_each_is_told(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _grouped, _errors)
    assert [seen.result] == bare(_grouped, _errors)
    assert [one.error for one in seen.of(Raised)] == seen.result, "also one that is like the one before"
    assert [one.through for one in seen.of(Raised)] == ["forward", "forward", "backward", "load"]


def _loads() -> None:
    model = _net()
    _sgd(model)
    state = model.state_dict()
    model.load_state_dict(state)
    model.load_state_dict({f"module.{name}": value for name, value in state.items()}, strict=False)
    model[0].load_state_dict({"weight": state["0.weight"]}, False)


def test_how_much_of_a_state_was_taken(tmp_path: Path) -> None:
    told = record_one(tmp_path, _loads).of(Loaded)
    assert [(one.model, one.matched, one.given, one.wanted, one.strict) for one in told] == [
        (0, 9, 9, 9, True),
        (0, 0, 9, 9, False),
        (-1, 1, 1, 2, False),
    ]


def _compiled() -> tuple[list[float], list[float]]:
    weights = []
    for number in range(2):
        torch.manual_seed(2)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
        run = torch.compile(model, backend="eager") if number else model
        optimizer = _sgd(model)
        for _ in range(3):
            _step(run, optimizer)
        weights.append(model.module[0].weight.tolist())
    return weights[0], weights[1]


def test_a_compiled_model_trains_the_same_and_its_steps_are_told(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _grouped, _compiled)
    assert seen.result[0] == seen.result[1]
    assert [one.optimizer for one in seen.of(Step)] == [0] * 3 + [1] * 3
    assert seen.of(Step)[2].after == seen.of(Step)[5].after
    assert [one.wrapped for one in seen.of(Optimizer)] == [(0,) * 4, (1,) * 4]


def _many() -> tuple[int, int]:
    from lockstep.trace.hooks import models

    for _ in range(500):
        nn.CrossEntropyLoss()(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    gc.collect()
    (all_of_them,) = (one for one in gc.get_objects() if type(one) is models.Models)
    return len(all_of_them.all), len(all_of_them.known)


def test_modules_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    kept, known = record_one(tmp_path, _many).result
    assert kept < 10 and known == 0
