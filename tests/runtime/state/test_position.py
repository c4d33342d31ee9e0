"""Where a run stands goes on step by step, epoch by epoch, evaluation by evaluation."""

import math
from dataclasses import FrozenInstanceError

import pytest

from lockstep.runtime.state.position import Position


def test_steps_count_samples_and_skips() -> None:
    position = Position().after_step(16, True).after_step(16, False).after_step(4, False)
    assert (position.step, position.consumed, position.skipped, position.skipped_in_row) == (3, 36, 2, 2)
    assert position.after_step(1, True).skipped_in_row == 0
    assert position.after_step(1, True).skipped == 2


def test_an_epoch_starts_without_samples() -> None:
    position = Position(step=7, consumed=52).after_epoch()
    assert (position.epoch, position.consumed, position.step) == (1, 0, 7)


@pytest.mark.parametrize(("mode", "values", "best", "stale"), [("max", [1, 3, 3, 2], 3, 2), ("min", [4, 2, 5], 2, 1)])
def test_best_is_the_first_of_the_best(mode: str, values: list[float], best: float, stale: int) -> None:
    position = Position()
    for value in values:
        position = position.after_step(1, True).after_evaluation(value, mode)  # type: ignore[arg-type]
    assert (position.best, position.stale) == (best, stale)
    assert position.best_step == values.index(best) + 1
    assert position.evaluated_at == len(values)


def test_nan_is_never_better() -> None:
    position = Position().after_evaluation(math.nan, "max")
    assert position.best is None and position.stale == 1
    position = position.after_evaluation(-1.0, "max").after_evaluation(math.nan, "max")
    assert (position.best, position.stale) == (-1.0, 1)


def test_an_evaluation_without_a_measure_of_better_is_remembered_only() -> None:
    position = Position(step=3).after_evaluation(None, "max")
    assert position == Position(step=3, evaluated_at=3)


def test_it_comes_back_from_plain_values() -> None:
    position = Position(9, 1, 5, 2, 1, 0.5, 6, 1, 6)
    assert Position(**position.to_dict()) == position
    assert all(value is None or isinstance(value, int | float) for value in position.to_dict().values())


def test_it_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        Position().step = 1  # type: ignore[misc]
