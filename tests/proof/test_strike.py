"""What falls on a rank, and the watch that ends a take after it. Real ranks: tests/proof/test_fault.py."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from lockstep.proof import strike
from lockstep.proof.strike import FaultWatch, Mark, Strike, read_mark, read_stack
from lockstep.proof.whole import damage


class Recorder:
    """What a strike needs of one."""

    def __init__(self, home: Path, rank: int = 1, step: int = 0) -> None:
        (home / "trace").mkdir(parents=True, exist_ok=True)
        self.folder, self.rank, self.step = home / "trace", rank, step
        self.alive, self.quiet, self.told = True, False, [""]
        self.after_step: list[Callable[[int], None]] = []
        self.patched: dict[str, Any] = {}

    def patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self.patched[name] = make(getattr(owner, name))

    def flush(self) -> None:
        """Nothing is held back."""

    def where(self) -> str:
        return "train.py:7"

    def raised(self, through: str, error: BaseException) -> None:
        self.told.append(through)


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def no_kill(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def kill(recorder: Any) -> NoReturn:
        raise Killed

    monkeypatch.setattr(strike, "_kill", kill)
    monkeypatch.setattr(strike.faulthandler, "dump_traceback_later", lambda *args, **kwargs: None)
    monkeypatch.setattr(strike, "register_optimizer_step_pre_hook", lambda hook: None)
    yield
    while strike._open_files:
        strike._open_files.pop().close()


def armed(home: Path, one: Strike, **more: Any) -> Recorder:
    recorder = Recorder(home, **more)
    one.arm(recorder)  # type: ignore[arg-type]
    return recorder


def loss() -> torch.Tensor:
    return torch.ones(2, requires_grad=True).sum()


def test_it_falls_once_at_its_step_on_its_rank(tmp_path: Path) -> None:
    fault = Strike("raise", 1, 2)
    assert "backward" not in armed(tmp_path, fault, rank=0).patched
    recorder = armed(tmp_path, fault)
    backward = recorder.patched["backward"]
    backward(loss())
    assert read_mark(tmp_path) is None
    recorder.step = 2
    with pytest.raises(torch.OutOfMemoryError, match=r"out of memory: thrown by `lockstep verify`"):
        backward(loss())
    mark = read_mark(tmp_path)
    assert mark is not None
    assert (mark.rank, mark.step, mark.at, recorder.told[-1]) == (1, 2, "train.py:7", "backward")
    assert abs(mark.time - time.time()) < 30
    assert read_stack(tmp_path) == ""
    backward(loss())  # not again


def test_a_kill_falls_in_a_backward(tmp_path: Path) -> None:
    recorder = armed(tmp_path, Strike("kill", 1, 0))
    with pytest.raises(Killed):
        recorder.patched["backward"](loss())
    assert read_mark(tmp_path) is not None


def test_nothing_falls_in_a_process_that_does_not_record(tmp_path: Path) -> None:
    recorder = armed(tmp_path, Strike("kill", 1, 0))
    recorder.alive = False
    recorder.patched["backward"](loss())


def test_a_kill_in_a_save_leaves_half_of_the_file(tmp_path: Path) -> None:
    recorder = armed(tmp_path, Strike("save", 1, 3, nth=1))
    save = recorder.patched["save"]
    first, second = tmp_path / "first.pt", tmp_path / "second.pt"
    save({"a": torch.ones(500)}, second)
    recorder.step = 3
    save({"a": torch.ones(500)}, first)
    assert damage(first) == damage(second) == ""
    with pytest.raises(Killed), second.open("wb") as file:
        save({"a": torch.ones(500)}, file)
    assert damage(second) and not damage(first)
    mark = read_mark(tmp_path)
    assert mark is not None and mark.path == str(second)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Asked as often as it likes."""
    one = FaultWatch(tmp_path, 2, due_s=0.4, limit_s=60, quiet_s=60)

    def ask() -> str:
        one._asked = 0.0
        return one()

    return ask


def mark(home: Path, ago_s: float) -> None:
    text = '{"rank": 1, "step": 2, "time": %f}'
    (home / "fault.json").write_text(text % (time.time() - ago_s))


def test_a_take_ends_in_time_after_the_fault(tmp_path: Path, watch: Callable[[], str]) -> None:
    assert watch() == ""
    mark(tmp_path, 1.0)
    time.sleep(0.5)
    assert watch() == ""  # no longer due
    mark(tmp_path, strike.GONE_S + 0.1)
    assert watch() == "fault"


def test_a_take_ends_when_all_ranks_have_gone_on(tmp_path: Path, watch: Callable[[], str]) -> None:
    mark(tmp_path, 0.0)
    steps = [armed(tmp_path, Strike("raise", 1, 2), rank=rank).after_step[0] for rank in range(2)]
    for step in (1, 2):
        for after in steps:
            after(step)
    assert watch() == ""
    steps[0](3)
    assert watch() == ""
    steps[1](3)
    assert watch() == "fault"


def test_a_fault_that_never_falls_is_not_waited_for(watch: Callable[[], str]) -> None:
    time.sleep(0.5)
    assert watch() == "time"


def test_processes_have_what_is_left_of_the_time(tmp_path: Path) -> None:
    one = FaultWatch(tmp_path, 2, due_s=9, limit_s=60, quiet_s=60)
    assert one.patience_s() == 0
    mark(tmp_path, 2.0)
    assert strike.GONE_S - 4 < one.patience_s() <= strike.GONE_S - 2
    mark(tmp_path, 60.0)
    assert one.patience_s() == 0


def test_half_a_mark_is_none(tmp_path: Path) -> None:
    (tmp_path / "fault.json").write_text('{"rank": 1, "st')
    assert read_mark(tmp_path) is None
    (tmp_path / "fault.json").write_text('{"rank": 1, "step": 2, "time": 3.0}')
    assert read_mark(tmp_path) == Mark(1, 2, 3.0)


def test_after_an_error_a_rank_does_what_python_does_at_its_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def fail(*args: Any) -> None:
        raise ValueError("mine")

    monkeypatch.setattr(strike, "script_rank", fail)
    for module, name in ((strike.threading, "_shutdown"), (strike.multiprocessing.util, "_exit_function")):
        monkeypatch.setattr(module, name, partial(done.append, name))
    monkeypatch.setattr(strike.atexit, "_run_exitfuncs", partial(done.append, "handlers"))
    program: Any = None
    with pytest.raises(ValueError, match="mine"):
        strike.script_as_python(program, program, None, program)
    assert done == ["_shutdown", "_exit_function", "handlers"]
