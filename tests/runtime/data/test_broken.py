"""An error on its way from a worker: the rank, the sample and the user's line, and the right kind."""

import pickle

import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.data.broken import Broken, sound, unbatchable, unreadable


def fails(error: Exception) -> None:
    raise error  # the user's line


def caught(error: Exception) -> Exception:
    try:
        fails(error)
    except Exception as raised:
        return raised
    raise AssertionError


def test_a_sample_that_raised_is_named_with_the_users_line() -> None:
    broken = unreadable(caught(KeyError("image")), "train", 2, 17)
    assert not broken.misuse
    assert "reading train sample 17 raised KeyError: 'image'" in broken.message
    assert "epoch 2" in broken.message
    assert __file__ in broken.message
    assert "in fails" in broken.message


def test_an_error_without_a_traceback_is_told_too() -> None:
    assert "the data set itself" in unreadable(OSError("gone"), "val", 0, 3).message


@pytest.mark.parametrize(("kind", "misuse"), [(UserError, True), (RunError, False)])
def test_an_explained_error_stays_what_it_is(kind: type[Exception], misuse: bool) -> None:
    broken = unreadable(caught(kind("said already")), "train", 0, 0)
    assert broken == Broken("said already", misuse)
    error = broken.error(3)
    assert type(error) is kind
    assert str(error) == "rank 3: said already"


def test_samples_that_make_no_batch_are_named() -> None:
    keys = [(1, index) for index in range(100, 120)]
    broken = unbatchable(caught(RuntimeError("stack expects equal sizes")), "train", keys)
    assert "making a batch of train samples 100, 101, 102, 103, 104, 105, 106, 107 ... raised RuntimeError" in (
        broken.message
    )
    assert "epoch 1" in broken.message
    assert "samples 7 raised" in unbatchable(ValueError(), "val", [(0, 7)]).message
    assert unbatchable(ValueError("empty"), "train", []).message


def test_it_survives_the_way_out_of_a_worker() -> None:
    broken = unreadable(caught(ValueError("x")), "train", 0, 1)
    assert pickle.loads(pickle.dumps(broken)) == broken


def test_what_is_sound_passes() -> None:
    batch = {"x": 1}
    assert sound(batch, 0) is batch
    assert sound(None, 0) is None
    with pytest.raises(RunError, match="rank 2: bad"):
        sound(Broken("bad", False), 2)
    with pytest.raises(UserError, match="rank 1: wrong"):
        sound(Broken("wrong", True), 1)
