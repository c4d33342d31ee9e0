"""A step that is left out leaves the running statistics as they were."""

import math

import torch
from torch import nn

from lockstep.runtime.undo import BufferUndo
from lockstep.runtime.world import World
from tests.runtime.regression import FINE, NAN, Regression, samples, session_of, step_of


class Normed(Regression):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))


def test_running_statistics_move_with_good_steps_only() -> None:
    with World.enter(threads=1) as world:
        session = session_of(Normed(), world)
        norm = session.model[0]  # type: ignore[index]
        before = norm.running_mean.clone()
        assert step_of(session, [samples([FINE] * 6)]).updated
        after = norm.running_mean.clone()
        assert not torch.equal(before, after)
        bad = samples([FINE] * 5 + [NAN])
        bad["x"][5] = math.nan
        assert not step_of(session, [samples([FINE] * 6), bad]).updated
        assert torch.equal(norm.running_mean, after)
        assert int(norm.num_batches_tracked) == 1
        assert step_of(session, [samples([FINE] * 6)]).updated
        assert torch.isfinite(norm.running_mean).all()


def test_a_buffer_that_changes_its_shape() -> None:
    model = nn.Module()
    model.register_buffer("seen", torch.zeros(2))
    undo = BufferUndo(model)
    undo.undo()  # nothing is kept yet
    undo.keep()
    model.seen = torch.ones(3)
    undo.keep()
    model.seen += 1
    undo.undo()
    assert model.seen.tolist() == [1.0, 1.0, 1.0]
