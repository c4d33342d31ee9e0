"""Whose line it is."""

import functools
import json
import random
import sys
import sysconfig
import threading
from pathlib import Path

import torch

import lockstep
from lockstep.recipes import digit_scenes
from lockstep.trace.place import is_users, users_line

OURS = Path(lockstep.__file__).parent


def test_files_of_python_of_packages_and_of_lockstep_are_not_the_users() -> None:
    for module in (json, random, torch, torch.nn.functional):
        assert not is_users(str(module.__file__))
    for name in ("<frozen importlib._bootstrap>", "<string>", str(OURS / "trace" / "place.py")):
        assert not is_users(name)
    assert not is_users(str(Path("/elsewhere/lib/python3.11/site-packages/package/file.py")))


def test_scripts_are_the_users_wherever_they_lie() -> None:
    assert is_users(__file__) and is_users("train.py") and is_users("/home/me/a b/tr\u00e4in.py")
    assert is_users(str(OURS) + "-demo/train.py"), "a name that begins as ours does"
    assert is_users(sysconfig.get_paths()["stdlib"] + "x/train.py")
    assert is_users(str(digit_scenes.__file__)), "a recipe of ours is judged as a user's script is"


def test_the_line_of_the_caller_is_named_and_not_that_of_packages_between() -> None:
    line = sys._getframe().f_lineno + 1
    assert users_line() == f"{__file__}:{line}"
    found: list[str] = []
    json.dumps(object(), default=lambda _: found.append(users_line(2)))
    assert found == [f"{__file__}:{line + 2}"], "the line that called json"


def test_a_stack_without_a_frame_of_the_users_has_no_line() -> None:
    found: list[str] = []
    thread = threading.Thread(target=functools.partial(_look, found))
    thread.start()
    thread.join()
    assert found == [""]


def _look(found: list[str]) -> None:
    found.append(users_line(2))
