"""TensorBoard files have every point, those that are done again hidden; the package is asked for, found or left out."""

from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.runtime.trackers.tensor_board import TensorBoard, tensorboard_wanted


def test_it_is_asked_for_found_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not tensorboard_wanted("auto") and not tensorboard_wanted("off")
    with pytest.raises(UserError, match="tensorboard is not installed"):
        tensorboard_wanted("on")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert tensorboard_wanted("auto") and tensorboard_wanted("on") and not tensorboard_wanted("off")


def test_without_a_record_nothing_is_written(tmp_path: Path) -> None:
    TensorBoard(tmp_path, None).close()
    assert not (tmp_path / "tensorboard").exists()


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore")  # of tensorboard's own imports
def test_steps_that_are_done_again_are_there_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path, None)
    for step in (1, 2, 3):
        board.record(step, {"loss": step / 2, "epoch": 0.0})
    board.close()
    board = TensorBoard(tmp_path, 3)
    board.record(3, {"loss": 9.0})
    board.close()
    found = scalars(tmp_path)
    assert found["loss"] == [(1, 0.5), (2, 1.0), (3, 9.0)]
    assert set(found) == {"loss", "epoch"}
