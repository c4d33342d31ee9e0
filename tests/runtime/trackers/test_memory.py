"""What is remembered of a tracker: its id, and the last step of each curve."""

from pathlib import Path

import pytest

from lockstep.runtime.trackers.memory import FILE, Memory


def test_a_resumed_run_reads_what_was_kept(tmp_path: Path) -> None:
    memory = Memory(tmp_path, go_on=False)
    memory.keep_id("W&B", "abc")
    memory.keep_sent("W&B", 5, {"loss": 1.0, "lr": 0.1})
    memory.keep_sent("W&B", 10, {"loss": 1.0})
    memory.keep_id("own", None)
    memory.keep_sent("own", 10, {"loss": 1.0})
    again = Memory(tmp_path, go_on=True)
    assert (again.run_id("W&B"), again.sent("W&B")) == ("abc", {"loss": 10, "lr": 5})
    assert (again.run_id("own"), again.sent("own")) == (None, {})


def test_a_new_run_forgets(tmp_path: Path) -> None:
    Memory(tmp_path, go_on=False).keep_id("W&B", "abc")
    assert Memory(tmp_path, go_on=False).run_id("W&B") is None


def test_another_id_starts_from_nothing_and_the_same_goes_on(tmp_path: Path) -> None:
    memory = Memory(tmp_path, go_on=False)
    memory.keep_id("W&B", "abc")
    memory.keep_sent("W&B", 5, {"loss": 1.0})
    memory.keep_id("W&B", "abc")
    assert memory.sent("W&B") == {"loss": 5}
    memory.keep_id("W&B", "xyz")
    assert memory.sent("W&B") == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"W&B": 3}', '{"W&B": {"id": 3, "sent": [1]}}', "\x00"])
def test_a_torn_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    memory = Memory(tmp_path, go_on=True)
    assert (memory.run_id("W&B"), memory.sent("W&B")) == (None, {})
