"""The recorder itself: what it fills in, when it stops, whom it leaves alone."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.trace.events import End, Event, Output, Raised, Seed, Start, Step, Trouble
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.trace import RankTrace, rank_file, read_trace
from tests.ranks import run_ranks
from tests.trace.recording import record_one, start

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def _told(folder: Path) -> RankTrace:
    return read_trace(folder).ranks[0]


def test_place_time_and_step_are_filled_in(tmp_path: Path) -> None:
    recorder = Recorder(Plan(tmp_path), 0)
    recorder.emit(Seed(lib="torch", value=1))
    recorder.step = 4
    recorder.emit(Seed(lib="torch", value=2, at="there:1", time=5.0))
    recorder.end(End(how="returned"))
    recorder.emit(Seed(lib="torch", value=3))
    recorder.end(End(how="returned"))
    first, second, end = _told(tmp_path).events
    assert first.at.startswith(f"{__file__}:") and first.time > 1e9 and first.step == 0
    assert (second.at, second.time, second.step) == ("there:1", 5.0, 4)
    assert isinstance(end, End), "nothing after the end"


def test_a_time_in_which_the_recorder_is_deaf(tmp_path: Path) -> None:
    recorder = Recorder(Plan(tmp_path), 0)
    recorder.quiet = True
    recorder.emit(Seed(lib="torch", value=1))
    recorder.quiet = False
    recorder.emit(Seed(lib="torch", value=2))
    recorder.end(End(how="returned"))
    assert [one.value for one in _told(tmp_path).of(Seed)] == [2]


def test_its_own_errors_are_told_and_go_no_further(tmp_path: Path) -> None:
    recorder = Recorder(Plan(tmp_path), 0)
    with recorder.ours:
        raise RuntimeError("a tensor of a new kind")
    with pytest.raises(KeyboardInterrupt), recorder.ours:
        raise KeyboardInterrupt
    recorder.at_end.append(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    recorder.end(End(how="returned"))
    assert [one.error for one in _told(tmp_path).of(Trouble)] == [
        "RuntimeError: a tensor of a new kind",
        "ZeroDivisionError: division by zero",
    ]
    assert _told(tmp_path).end is not None


def test_an_error_is_told_where_it_passes_first_and_the_next_one_again(tmp_path: Path) -> None:
    recorder = Recorder(Plan(tmp_path), 0)
    for _ in range(3):
        error = ValueError("the same words")
        recorder.raised("forward", error)
        recorder.raised("step", error)
        del error
    recorder.raised("batch", StopIteration())
    recorder.end(End(how="returned"))
    assert [one.through for one in _told(tmp_path).of(Raised)] == ["forward"] * 3


@pytest.mark.parametrize(
    ("plan", "steps", "enough"),
    [
        ({"steps": 2}, [0, 0], True),
        ({"steps": 2}, [0, 1, 0], False),
        ({"steps": 2}, [0, 1, 0, 1], True),
        ({"steps": 2}, [1, 0, 0, 0, 0, 0], True),  # the other one seems to have no more
        ({"max_seconds": 0.0}, [0], True),
        ({"max_seconds": 100.0}, [0, 0], False),
        ({}, [0] * 9, False),
    ],
)
def test_when_it_is_enough(tmp_path: Path, plan: dict[str, Any], steps: list[int], enough: bool) -> None:
    stopped: list[int] = []
    recorder = Recorder(Plan(tmp_path, **plan), 0, lambda: stopped.append(1))
    recorder.emit(Start(script="x"))
    for number, optimizer in enumerate(steps):
        assert not stopped, number
        recorder.stepped(optimizer)
    assert bool(stopped) is enough
    end = _told(tmp_path).end
    assert (end is not None and end.how == "enough") is enough
    recorder.end(End(how="returned"))


def test_it_goes_on_in_another_file(tmp_path: Path) -> None:
    recorder = Recorder(Plan(tmp_path), 1)
    recorder.emit(Seed(lib="torch", value=1))
    recorder.move(tmp_path / "launcher.jsonl")
    recorder.emit(Seed(lib="torch", value=2))
    recorder.end(End(how="returned"))
    assert not rank_file(tmp_path, 1).exists()
    assert len((tmp_path / "launcher.jsonl").read_text().splitlines()) == 3


def _children(folder: str) -> list[int]:
    """Whatever is started by the script is not the script."""
    parent = os.getpid()
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def child() -> None:
        torch.manual_seed(99)
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        (Path(folder) / "child").write_text("x")
        print("child")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert os.getpid() == parent
    forked = os.fork()
    if not forked:
        torch.manual_seed(99)
        os._exit(3)
    _, status = os.waitpid(forked, 0)
    done = subprocess.run([sys.executable, "-c", "print(5)"], check=True, capture_output=True)
    return [process.exitcode or 0, os.waitstatus_to_exitcode(status), int(done.stdout)]


def test_children_are_not_recorded(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _children, str(tmp_path))
    assert seen.result == [0, 3, 5] and (tmp_path / "child").exists()
    assert not seen.of(Step) and not seen.of(Seed)
    assert not [one for one in seen.of(Output) if "child" in one.text]


def _killed(folder: str) -> None:
    recorder = start(Plan(Path(folder)))
    for number in range(2000):
        torch.manual_seed(number)
    recorder.flush()
    for number in range(100):
        torch.manual_seed(number)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_was_flushed_survives_a_kill(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="SIGKILL"):
        run_ranks(_killed, 1, str(tmp_path))
    rank = _told(tmp_path)
    assert [one.value for one in rank.of(Seed)][:2000] == list(range(2000))
    assert rank.end is None


def test_memory_does_not_grow_with_the_number_of_events(tmp_path: Path) -> None:
    recorder = Recorder(Plan(tmp_path), 0)

    def tell(count: int) -> int:
        for number in range(count):
            recorder.emit(_event(number))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first, later = tell(2000), tell(8000)
    finally:
        tracemalloc.stop()
        recorder.end(End(how="returned"))
    assert later - first < 300_000


def _event(number: int) -> Event:
    return Output(what="print", text="x" * 150, count=number)
