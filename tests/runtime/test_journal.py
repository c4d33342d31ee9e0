"""Every record is a line of metrics.jsonl and points in TensorBoard; a resumed run goes on from its checkpoint."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import RunError
from lockstep.runtime.journal import Journal, kept_lines
from lockstep.runtime.trackers import About
from lockstep.runtime.trackers.courier import Courier
from lockstep.runtime.trackers.memory import Memory
from tests.runtime.trackers.test_courier import Stub, failing
from tests.runtime.trackers.test_tensor_board import scalars


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_record_is_a_line_as_soon_as_it_is_made(tmp_path: Path) -> None:
    journal = Journal(tmp_path, False)
    journal.record(1, {"loss": 0.5, "epoch": 0, "memory_mib": [1.0, 2.0], "note": "é"})
    assert lines(tmp_path) == [{"step": 1, "loss": 0.5, "epoch": 0, "memory_mib": [1.0, 2.0], "note": "é"}]
    journal.record(2, {"loss": math.nan})
    assert lines(tmp_path)[1]["loss"] is None
    journal.close("done", {})
    assert not (tmp_path / "tensorboard").exists()


def test_a_resumed_run_drops_what_it_does_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, False)
    for step in range(1, 6):
        journal.record(step, {"loss": float(step)})
    journal.record(3, {"val/loss": 3.0})
    journal.close("done", {})
    journal = Journal(tmp_path, False, resumed_at=3)
    journal.record(4, {"loss": 40.0})
    journal.close("done", {})
    assert [record["step"] for record in lines(tmp_path)] == [1, 2, 3, 3, 4]
    assert lines(tmp_path)[-1]["loss"] == 40.0


@pytest.mark.parametrize(
    "torn", ['{"step": 2, "lo', '{"step": 2, "loss": 2.0}', "\x00\x00\x00", '{"st\xff', "\n\n", "[1]\n"]
)
def test_a_torn_last_line_is_dropped(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": 1.0}\n' + torn.encode("latin-1"))
    journal = Journal(tmp_path, False, resumed_at=2)
    journal.record(2, {"loss": 20.0})
    journal.close("done", {})
    assert lines(tmp_path) == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 20.0}]


def test_resumed_without_a_log_it_begins_one(tmp_path: Path) -> None:
    Journal(tmp_path, False, resumed_at=3).close("done", {})
    assert lines(tmp_path) == []


def test_kept_lines_are_whole_and_not_later() -> None:
    text = '{"step": 1}\nrubbish\n{"loss": 2}\n{"step": "x"}\n{"step": 3}\n{"step": 2}\n{"step": 1}'
    assert kept_lines(text, 2) == ['{"step": 1}\n', '{"step": 2}\n']


@pytest.mark.filterwarnings("ignore")  # of tensorboard's own imports
def test_tensorboard_has_the_same_points_and_a_curve_for_each_rank(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    journal = Journal(tmp_path, True)
    for step in (1, 2, 3):
        journal.record(step, {"loss": step / 2, "epoch": 0, "memory_mib": [1.0, 2.0], "note": "text"})
    journal.close("done", {})
    journal = Journal(tmp_path, True, resumed_at=2)
    journal.record(3, {"loss": 9.0})
    journal.close("done", {})
    found = scalars(tmp_path)
    assert set(found) == {"loss", "epoch", "memory_mib/rank_0", "memory_mib/rank_1"}
    assert found["loss"] == [(1, 0.5), (2, 1.0), (3, 9.0)]
    assert found["memory_mib/rank_1"] == [(1, 2.0), (2, 2.0)]


def test_a_number_that_is_not_finite_is_null_for_strict_readers(tmp_path: Path) -> None:
    journal = Journal(tmp_path, False)
    journal.record(1, {"loss": float("nan"), "memory_mib": [1.0, float("inf")], "lr": 0.5})
    journal.close("done", {})
    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=None) == {"step": 1, "loss": None, "memory_mib": [1.0, None], "lr": 0.5}


def test_an_evaluation_that_is_done_again_is_dropped(tmp_path: Path) -> None:
    lines = ['{"step": 5, "val/loss": 2.0}\n', '{"step": 6, "loss": 1.0}\n', '{"step": 6, "val/loss": 1.5}\n']
    assert kept_lines("".join(lines), 6, evaluated=True) == lines
    assert kept_lines("".join(lines), 6, evaluated=False) == lines[:2]


def couriers(folder: Path, *stubs: Stub) -> list[Courier]:
    for number, stub in enumerate(stubs):
        stub.name = f"stub {number}"
    return [Courier(stub, Memory(folder, go_on=False)) for stub in stubs]


def test_trackers_get_numbers_by_curve_and_the_end(tmp_path: Path) -> None:
    stub = Stub()
    journal = Journal(tmp_path, False, couriers(tmp_path, stub))
    journal.begin(About("name", tmp_path, {}, {}))
    journal.record(1, {"loss": 0.5, "epoch": 0, "memory_mib": [1.0, 2.0], "note": "text"})
    journal.close("stopped early", {"val/loss": 2.0})
    assert stub.calls[1:] == [
        ("record", 1, {"loss": 0.5, "epoch": 0.0, "memory_mib/rank_0": 1.0, "memory_mib/rank_1": 2.0}),
        ("finish", "stopped early", {"val/loss": 2.0}),
    ]


def test_where_one_tracker_cannot_be_started_those_before_it_are_ended(tmp_path: Path) -> None:
    first, second, third = Stub(), Stub(about=failing), Stub()
    journal = Journal(tmp_path, False, couriers(tmp_path, first, second, third))
    with pytest.raises(RunError, match="stub 1 cannot be started"):
        journal.begin(About("name", tmp_path, {}, {}))
    assert first.calls == [("about", None), ("finish", "failed", {})]
    assert third.calls == []
