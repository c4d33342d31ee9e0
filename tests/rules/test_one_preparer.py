"""LS304: data that several ranks prepare at once."""

import pytest

from lockstep.rules import one_preparer
from tests.rules.by_hand import barrier, file, moved, steps, trace

DATA = "data.npy"


def test_all_ranks_prepare_and_read() -> None:
    run = [file("write", DATA), file("read", DATA), *steps()]
    (finding,) = one_preparer.dynamic(trace(run, run))
    assert "ranks 0 and 1 all prepare data.npy" in finding.seen


def test_a_barrier_behind_it_does_not_help() -> None:
    run = [file("save", DATA), barrier(), file("load", DATA), *steps()]
    assert list(one_preparer.dynamic(trace(run, run)))


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(
            ([file("write", DATA), barrier(), file("read", DATA)], [barrier(), file("read", DATA)]), id="rank 0 alone"
        ),
        pytest.param(([file("write", DATA), *steps()],) * 2, id="nobody reads it: LS301"),
        pytest.param(([*steps(), file("write", DATA), file("read", DATA)],) * 2, id="after the training: LS301"),
        pytest.param(
            tuple([file("write", f"{k}.tmp"), moved(f"{k}.tmp", DATA), file("read", DATA)] for k in "01"),
            id="each moves its own into place",
        ),
    ],
)
def test_left_alone(runs: tuple[list, list]) -> None:
    assert not list(one_preparer.dynamic(trace(*runs)))
