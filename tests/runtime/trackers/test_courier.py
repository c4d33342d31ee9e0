"""A tracker that is slow, fails or hangs costs the training no time, and a run no more than a bounded wait."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.trackers import About
from lockstep.runtime.trackers import courier as module
from lockstep.runtime.trackers.courier import Courier, told
from lockstep.runtime.trackers.memory import Memory

ABOUT = About("name", Path(), {}, {})


class Stub:
    """A tracker whose calls do what a test wants, and are kept."""

    name = "stub"

    def __init__(self, **does: Callable[..., Any]) -> None:
        self.does, self.calls, self.abandoned = does, list[Any](), threading.Event()

    def about(self, about: About) -> str | None:
        return self._call("about", about.run_id) or "id"

    def record(self, step: int, values: Mapping[str, float]) -> None:
        self._call("record", step, dict(values))

    def finish(self, ending: str, results: Mapping[str, float]) -> None:
        self._call("finish", ending, dict(results))

    def abandon(self) -> None:
        self.abandoned.set()

    def _call(self, name: str, *args: Any) -> Any:
        self.calls.append((name, *args))
        return self.does.get(name, lambda *_: None)(*args)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Calls that wait for it come back at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def begun(stub: Stub, folder: Path, go_on: bool = False) -> Courier:
    one = Courier(stub, Memory(folder, go_on), "look at it")
    one.begin(ABOUT)
    return one


def end(one: Courier, timeout_s: float = 5.0) -> None:
    one.finish("done", {"val/loss": 1.0})
    one.wait(time.monotonic() + timeout_s)


def failing(*_: Any) -> None:
    raise ConnectionError("the server is gone\nin two lines")


def test_calls_come_in_order(tmp_path: Path) -> None:
    stub = Stub()
    one = begun(stub, tmp_path)
    one.record(1, {"loss": 2.0})
    one.record(2, {"loss": 1.0})
    end(one)
    assert stub.calls == [
        ("about", None),
        ("record", 1, {"loss": 2.0}),
        ("record", 2, {"loss": 1.0}),
        ("finish", "done", {"val/loss": 1.0}),
    ]


def test_what_it_has_from_an_earlier_start_is_not_sent_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = begun(Stub(), tmp_path)
    one.record(10, {"loss": 1.0, "epoch": 0.0})
    one.record(20, {"loss": 1.0})
    end(one)
    stub = Stub()
    with caplog.at_level(logging.INFO, logger="lockstep"):
        one = begun(stub, tmp_path, go_on=True)
    for step in (10, 20, 30):
        one.record(step, {"loss": 2.0, "epoch": 1.0})
    end(one)
    assert stub.calls[0] == ("about", "id")
    assert stub.calls[1:-1] == [("record", 20, {"epoch": 1.0}), ("record", 30, {"loss": 2.0, "epoch": 1.0})]
    assert "stub has this run up to step 20" in caplog.text


def test_one_that_cannot_be_started_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    stub = Stub(about=failing)
    with pytest.raises(RunError, match="stub cannot be started: ConnectionError: the server is gone") as caught:
        begun(stub, tmp_path)
    assert "Next: look at it" in str(caught.value) and "two lines" not in str(caught.value)
    assert stub.abandoned.is_set()


def test_the_users_mistake_stays_one(tmp_path: Path) -> None:
    def mistake(*_: Any) -> None:
        raise UserError("no key")

    with pytest.raises(UserError, match="no key"):
        begun(Stub(about=mistake), tmp_path)


def test_one_that_does_not_answer_at_the_start_is_left_alone(tmp_path: Path, gate: threading.Event) -> None:
    stub = Stub(about=lambda *_: gate.wait())
    one = Courier(stub, Memory(tmp_path, go_on=False))
    start = time.monotonic()
    with pytest.raises(RunError, match=r"stub has not answered in 0\.2 s"):
        one.begin(ABOUT, timeout_s=0.2)
    assert time.monotonic() - start < 2 and stub.abandoned.is_set()


def test_a_failing_record_is_told_once_and_the_next_are_tried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def odd(step: int, _: Any) -> None:
        if step < 3:
            failing()

    stub = Stub(record=odd)
    one = begun(stub, tmp_path)
    for step in range(5):
        one.record(step, {"loss": 1.0})
    end(one)
    assert [call[1] for call in stub.calls if call[0] == "record"] == [0, 1, 2, 3, 4]
    assert caplog.text.count("the server is gone; training goes on") == 1
    assert "stub has missed 3 records" in caplog.text
    assert Memory(tmp_path, go_on=True).sent("stub") == {"loss": 4}


def test_a_package_that_wants_to_exit_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def leave(*_: Any) -> None:
        raise SystemExit(3)

    end(begun(Stub(finish=leave), tmp_path))
    assert "stub does not take the numbers: SystemExit: 3" in caplog.text


def test_a_hung_one_holds_neither_the_training_nor_its_end(
    tmp_path: Path, gate: threading.Event, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOM", 10)
    stub = Stub(record=lambda *_: gate.wait())
    one = begun(stub, tmp_path)
    start = time.monotonic()
    for step in range(100):
        one.record(step, {"loss": 1.0})
    assert time.monotonic() - start < 1
    end(one, timeout_s=0.2)
    assert time.monotonic() - start < 3 and stub.abandoned.is_set()
    assert "stub does not take the numbers: it is 10 records behind" in caplog.text
    assert "stub has not taken all of the run in time" in caplog.text


def test_an_error_is_told_in_one_line() -> None:
    assert told(ValueError("\n  first\nsecond")) == "ValueError: first"
    assert told(KeyError()) == "KeyError" and len(told(ValueError("x" * 999))) == 200


def test_the_first_cause_of_an_error_is_told_too() -> None:
    error, middle = ValueError("of the package"), KeyError("between")
    error.__context__, middle.__cause__ = middle, OSError("disk full")
    assert told(error) == "ValueError: of the package (first: OSError: disk full)"
