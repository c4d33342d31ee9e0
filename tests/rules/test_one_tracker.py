"""LS305: trackers and words on all ranks."""

import pytest

from lockstep.core.finding import Severity
from lockstep.rules import one_tracker
from tests.rules.by_hand import said, trace


@pytest.mark.parametrize("what", ["tensorboard", "wandb", "mlflow"])
def test_a_tracker_on_all_ranks(what: str) -> None:
    run = [said("log_dir=runs", what)]
    (finding,) = one_tracker.dynamic(trace(run, run))
    assert finding.severity is Severity.ERROR
    assert len(finding.witnesses) == 2


def test_words_on_all_ranks_are_one_note() -> None:
    run = [said("begins", line=1), said("epoch 0", line=2), said("epoch 1", line=2, count=2), said("x", "tqdm", line=3)]
    (finding,) = one_tracker.dynamic(trace(run, run))
    assert finding.severity is Severity.NOTE
    assert "3 lines of the script print the same words on all 2 ranks" in finding.seen


def test_bars_on_all_ranks() -> None:
    run = [said("epoch 0", "tqdm")]
    (finding,) = one_tracker.dynamic(trace(run, run))
    assert "disable=rank != 0" in finding.next_step


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(([said("a", "wandb"), said("b")], []), id="rank 0 alone"),
        pytest.param(
            ([said("log_dir=runs/0", "tensorboard")], [said("log_dir=runs/1", "tensorboard")]), id="own folders"
        ),
        pytest.param(([said("project=a group=b", "wandb")],) * 2, id="one group of runs"),
        pytest.param(([said("rank 0: 0.5")], [said("rank 1: 0.4")]), id="each speaks for itself"),
        pytest.param(([said("a", line=1)], [said("a", line=2)]), id="different lines"),
    ],
)
def test_left_alone(runs: tuple[list, list]) -> None:
    assert not list(one_tracker.dynamic(trace(*runs)))
