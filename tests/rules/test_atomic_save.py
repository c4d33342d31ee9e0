"""LS307: a checkpoint that is overwritten in place."""

import pytest

from lockstep.core.finding import Severity
from lockstep.rules import atomic_save
from tests.rules.by_hand import file, moved, steps, trace


def test_saved_over() -> None:
    run = [*steps(), file("save"), *steps(), file("save", exists=True)]
    (finding,) = atomic_save.dynamic(trace(run, steps(2)))
    assert finding.severity is Severity.NOTE
    assert "rank 0 saves over model.pt" in finding.seen


@pytest.mark.parametrize(
    "run",
    [
        pytest.param([file("save"), file("save", "other.pt")], id="once each"),
        pytest.param([file("save", exists=True)], id="over that of another run, once"),
        pytest.param([file("save", "a.tmp"), moved("a.tmp", "a.pt")] * 2, id="moved into place"),
        pytest.param(
            [file("save", "a.tmp", exists=True), moved("a.tmp", "a.pt")] * 2, id="a remainder of a killed run goes"
        ),
        pytest.param([file("save"), moved("model.pt", "old.pt")] * 2, id="the old one is moved away"),
        pytest.param([file("write", exists=True)] * 2, id="no checkpoint"),
    ],
)
def test_left_alone(run: list) -> None:
    assert not list(atomic_save.dynamic(trace(run)))
