"""What a resume could not read is refused before it is written, and named; what it can read passes."""

import io
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.core.errors import UserError
from lockstep.runtime.readable import check_readable
from lockstep.runtime.state.saver import Position, State


class Own:
    """No plain value."""


class Pair(NamedTuple):
    left: int
    right: int


class Words(list[str]):
    """A list of a class of its own."""


READABLE = [
    {"a": [1, 2.5, None, True, "x", b"y", 1j, (1, (2,))], 3: {"deep": torch.ones(2)}},
    OrderedDict(a=1),
    {1, 2},
    torch.Size([2, 3]),
    torch.float16,
    torch.device("cpu"),
    nn.Parameter(torch.ones(2)),
]
UNREADABLE = [Own(), Pair(1, 2), Words("ab"), Path("a"), np.float64(1.0), lambda: 1, threading.Lock(), Own]


@pytest.mark.parametrize("value", READABLE, ids=[type(one).__name__ for one in READABLE])
def test_what_comes_back_passes(value: Any) -> None:
    check_readable({"notes": {"mine": value}})
    file = io.BytesIO()
    torch.save({"mine": value}, file)
    file.seek(0)
    torch.load(file, weights_only=True)


@pytest.mark.parametrize("value", UNREADABLE, ids=[type(one).__name__ for one in UNREADABLE])
def test_what_does_not_is_named(value: Any) -> None:
    with pytest.raises(UserError) as caught:
        check_readable({"position": {}, "notes": {"mine": [0, value]}})
    assert f"notes['mine'][1] is of type {type(value).__module__}." in str(caught.value)
    assert "Next: let what stands in State.notes be plain values" in str(caught.value)


def test_a_key_may_be_odd_too() -> None:
    with pytest.raises(UserError, match="a key of stream is of type"):
        check_readable({"stream": {Path("a"): 1}})


def test_what_holds_itself_may_be_kept() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    check_readable({"stream": circle})


class Odd(nn.Linear):
    extra: Any = None

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


def test_a_model_is_refused_before_it_trains_and_again_when_it_is_saved() -> None:
    model = Odd(2, 1)
    model.extra = Own()
    with pytest.raises(UserError, match=r"extra_state\['_extra_state'\] is of type .*Own"):
        State(model, torch.optim.SGD(model.parameters()))
    model.extra = {"scale": 2.0}
    state = State(model, torch.optim.SGD(model.parameters()))
    assert state.snapshot(Position(), {}).trainer["extra_state"] == {"_extra_state": {"scale": 2.0}}
    model.extra = Own()
    with pytest.raises(UserError, match=r"let get_extra_state\(\) of the model be plain values"):
        state.snapshot(Position(), {})
