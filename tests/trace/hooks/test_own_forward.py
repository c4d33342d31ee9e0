"""Modules without the hooks that watch them."""

import copy
import pickle
from typing import Any

from torch import nn

from lockstep.trace.hooks.own_forward import Hook, without_hooks


class _Users:
    def __call__(self, *args: Any) -> None:
        pass


def _watched() -> tuple[nn.Module, list[Any]]:
    model, called = nn.Linear(1, 1), []
    model.register_forward_pre_hook(_Users())
    model.register_forward_pre_hook(Hook(lambda *args: called.append(args)), with_kwargs=True)
    model.register_forward_hook(Hook(lambda *args: called.append(args)))
    model.register_forward_hook(_Users(), always_call=True)
    return model, called


def test_the_users_own_hooks_stay() -> None:
    state = without_hooks(vars(_watched()[0]))
    assert [type(one) for one in state["_forward_pre_hooks"].values()] == [_Users]
    assert [type(one) for one in state["_forward_hooks"].values()] == [_Users]
    assert not state["_forward_pre_hooks_with_kwargs"] and len(state["_forward_hooks_always_called"]) == 1


def test_a_module_that_is_not_watched_is_left_alone() -> None:
    state = vars(nn.Linear(1, 1))
    assert without_hooks(state) is state


def test_a_module_that_is_watched_stays_so() -> None:
    model, _ = _watched()
    without_hooks(vars(model))
    assert len(model._forward_pre_hooks) == len(model._forward_hooks) == 2


def test_a_hook_that_was_copied_all_the_same_does_nothing() -> None:
    called: list[Any] = []
    hook = Hook(lambda *args: called.append(args))
    for copied in (copy.deepcopy(hook), pickle.loads(pickle.dumps(hook))):
        copied(1, 2)
    assert not called
    hook(1, 2)
    assert called == [(1, 2)]
