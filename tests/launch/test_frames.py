import json
import os
import statistics

import pytest

import lockstep
from lockstep.core.errors import UserError
from lockstep.launch import frames


def raised(call: object) -> BaseException:
    with pytest.raises(Exception) as caught:
        call()  # type: ignore[operator]
    return caught.value


def users_mistake() -> None:
    json.loads("{")


def test_whose_file() -> None:
    assert frames.is_users(__file__)
    assert frames.is_users("<string>")
    assert not frames.is_users("<frozen runpy>")
    assert not any(frames.is_users(str(module.__file__)) for module in (json, lockstep, pytest))


def test_where_is_the_users_innermost_frame() -> None:
    error = raised(users_mistake)
    where = frames.where_of(error)
    assert where.endswith(" in users_mistake")
    assert "test_frames.py:" in where
    shown = frames.users_traceback(error)
    assert "users_mistake" in shown and "decoder.py" not in shown
    assert "decoder.py" in frames.full_traceback(error)


def test_where_without_a_frame_of_the_users() -> None:
    error = raised(lambda: statistics.mean([]))
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # type: ignore[union-attr]
    assert "statistics.py:" in frames.where_of(error)
    assert frames.where_of(ValueError()) == ""


def test_paths_below_the_working_folder_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(__file__))  # noqa: PTH120
    assert frames.where_of(raised(users_mistake)).startswith("test_frames.py:")


CARRIED = """Caught UserError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/venv/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 20, in __getitem__
    raise UserError(text)
lockstep.core.errors.UserError: Sample 9 is broken.
  Must hold: every sample can be read

unindented too
"""


def test_a_workers_error_is_unwrapped() -> None:
    worker = frames.worker_error(CARRIED)
    assert worker is not None
    assert worker.type_name == UserError.__name__
    assert worker.message == "Sample 9 is broken.\n  Must hold: every sample can be read\n\nunindented too"
    assert worker.where == "/home/me/data.py:20 in __getitem__"


def test_a_workers_error_that_was_raised_from_another() -> None:
    chained = (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        '  File "/a.py", line 1, in f\nKeyError: 3\n\nThe above exception was the direct cause:\n\n'
        'Traceback (most recent call last):\n  File "/b.py", line 2, in g\nValueError\n'
    )
    worker = frames.worker_error(chained)
    assert worker == frames.Worker("ValueError", "", "/b.py:2 in g")


@pytest.mark.parametrize("text", ["", "Caught a cold", "Caught X.\nOriginal Traceback (most recent call last):\n"])
def test_other_messages_are_left_alone(text: str) -> None:
    assert frames.worker_error(text) is None


def test_the_spot_of_a_crash() -> None:
    stack = (
        "Fatal Python error: Segmentation fault\n\n"
        'Thread 0x01 (most recent call first):\n  File "/home/me/other.py", line 1 in wait\n\n'
        "Current thread 0x02 (most recent call first):\n"
        '  File "/venv/site-packages/numpy/x.py", line 8 in load\n'
        '  File "/home/me/data.py", line 20 in read\n  File "/home/me/main.py", line 4 in <module>\n\n'
        "Extension modules: numpy._core\n"
    )
    assert frames.crash_spot(stack) == "/home/me/data.py:20 in read"
    assert frames.crash_spot("") == ""


def test_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert frames.spot_of("/home/me/a.py", 3, "f") == "home/me/a.py:3 in f"
    assert frames.spot_of("a.py", 3, "f") == "a.py:3 in f"
