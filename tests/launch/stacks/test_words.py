from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.launch.stacks import Frame, Stack, Thread, doing, spot, users_frames
from tests.launch.stacks import targets
from tests.launch.stacks.conftest import Start, read_when, within


def stack_of(*frames: tuple[str, str]) -> Stack:
    """Innermost first."""
    made = tuple(Frame(file, 3, function) for file, function in frames)
    return Stack(7, (Thread("MainThread", True, made),), "py-spy")


@pytest.mark.parametrize(
    "target, words",
    [
        (targets.spin, "computes or loops"),
        (targets.sleep, "sleeps (time.sleep)"),
        (targets.hold_gil, "runs match"),
        (targets.wait_for_lock, "waits for a lock (acquire)"),
        (targets.wait_in_queue, "waits in queue.get"),
        (targets.wait_for_program, "waits for a program that it has started (subprocess)"),
        (targets.wait_for_data, "waits for a batch from its DataLoader workers"),
    ],
)
def test_what_a_process_does_in_words(start: Start, target: Callable[[], None], words: str) -> None:
    stack = read_when(start(target), lambda it: doing(it) == words)
    assert doing(stack) == words
    assert spot(stack).endswith(f" in {target.__name__}")


@pytest.mark.parametrize(
    "target, words",
    [
        (targets.wait_in_all_reduce, "waits in all_reduce"),
        (targets.wait_in_backward, "is in backward"),
        (targets.wait_for_rank_1, "waits for the other ranks in init_process_group"),
    ],
)
def test_waiting_for_another_rank(start: Start, tmp_path: Path, target: Callable[[], None], words: str) -> None:
    rank_0 = start(target, R="0", STORE=str(tmp_path))
    rank_1 = start(target, R="1", STORE=str(tmp_path))
    stack = read_when(rank_0, lambda it: doing(it) == words)
    assert doing(stack) == words
    (innermost, *_) = users_frames(stack)
    assert any(within(function, innermost.line) for function in (target, targets._join))
    other = read_when(rank_1, lambda it: doing(it) == "sleeps (time.sleep)")
    assert doing(other) == "sleeps (time.sleep)"


def test_the_users_frames_are_found_between_those_of_libraries() -> None:
    stack = stack_of(
        ("/venv/site-packages/torch/nn/functional.py", "linear"),
        ("/home/me/net.py", "forward"),
        ("/venv/site-packages/torch/nn/modules/module.py", "_call_impl"),
        ("/home/me/train.py", "main"),
    )
    assert [frame.file for frame in users_frames(stack)] == ["/home/me/net.py", "/home/me/train.py"]
    assert spot(stack) == "/home/me/net.py:3 in forward"
    assert doing(stack) == "runs linear"


def test_without_a_frame_of_the_users() -> None:
    assert spot(stack_of(("/venv/site-packages/torch/x.py", "f"))) == "/venv/site-packages/torch/x.py:3 in f"


def test_the_call_that_the_user_made_is_named_not_what_it_is_made_of() -> None:
    c10d = "/venv/site-packages/torch/distributed/distributed_c10d.py"
    assert doing(stack_of((c10d, "all_gather"), (c10d, "all_gather_object"), ("/a.py", "f"))) == (
        "waits in all_gather_object"
    )
    assert doing(stack_of((c10d, "barrier"), ("/a.py", "f"))) == "waits in barrier"


@pytest.mark.parametrize(
    "line, words",
    [
        ("    value = loss.item()", "reads a value of a tensor (on a GPU this waits for all work before it)"),
        ("    os.waitpid(pid, 0)", "waits for a child process"),
        ("    total += 1", "computes or loops"),
        ("    with self._lock:", "waits for a lock (with)"),
    ],
)
def test_a_call_into_c_is_known_by_its_line(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "user.py"
    file.write_text(f"# 1\ndef f():\n{line}\n")
    assert doing(stack_of((str(file), "f"))) == words


def test_a_line_that_says_nothing_and_uses_no_processor_waits() -> None:
    def said(busy: bool | None, *files: str) -> str:
        frames = tuple(Frame(file, 3, "f") for file in files)
        return doing(Stack(7, (Thread("", True, frames, busy),), "py-spy"))

    assert said(False, "/home/me/a.py") == "waits in a call of that line"
    assert said(True, "/home/me/a.py") == "computes or loops"
    library = "/venv/site-packages/numpy/x.py"
    assert (said(False, library), said(True, library), said(None, library)) == ("waits in f", "runs f", "runs f")


def test_nothing_is_said_of_what_could_not_be_read() -> None:
    unread = Stack(7, (), "", "it has ended")
    assert (spot(unread), doing(unread), users_frames(unread)) == ("", "", ())
