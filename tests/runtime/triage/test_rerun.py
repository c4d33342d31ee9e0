"""A watched run repeats the step exactly, and an error in it reaches the caller where others depend on it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.runtime.session import Session
from lockstep.runtime.streams import seed_rank_step
from lockstep.runtime.triage.rerun import Scene, watched
from lockstep.runtime.world import World
from tests.runtime.regression import FINE, NAN, Host, Regression, samples, session_of, step_of


class Dropped(Regression):
    """Keeps what came out of the model."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.outputs: list[Tensor] = []
        self.raises = False

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def loss(self, model: nn.Module, batch: Host) -> Any:
        if self.raises:
            raise ValueError("only now")
        terms = super().loss(model, batch)
        self.outputs += [term.sum.detach().clone() for term in terms.values()]
        return terms


def scene_of(session: Session, hosts: list[Host], counts: dict[str, float]) -> Scene:
    return Scene(
        replica=session.replica,
        precision=session.precision,
        batches=[session.on_device(host) for host in hosts],
        seed=3,
        rank=0,
        step=7,
        num_ranks=1,
        scale=4.0,
        counting=session.step.counting,
        counts=counts,
    )


@pytest.mark.parametrize("counts", ["whole", "known", "late"])
@pytest.mark.parametrize("micro", [1, 2])
def test_the_same_dropout_and_the_same_loss(counts: str, micro: int) -> None:
    hosts = [samples([FINE] * 6, seed) for seed in range(micro)]
    with World.enter(threads=1) as world:
        recipe = Dropped(counts=counts)
        session = session_of(recipe, world, "precision=fp32", f"batch.accumulation={micro}", "seed=3")
        recipe.outputs.clear()
        seed_rank_step(3, 0, 7)
        with torch.no_grad():
            params = [p.clone() for p in session.model.parameters()]
        result = step_of(session, hosts)
        for param, old in zip(session.model.parameters(), params, strict=True):
            param.data.copy_(old)
        first, recipe.outputs = recipe.outputs, []
        outcome = watched(scene_of(session, hosts, dict(result.counts)))
    assert all(torch.equal(a, b) for a, b in zip(first, recipe.outputs, strict=True))
    assert outcome.finite and outcome.finding is None and not outcome.weights
    total = sum(float(value) for value in first)
    stood_in = counts != "late" or micro == 2
    assert session.step.counting.kind == ("returned" if counts == "late" else "carried")
    divisor = session.step.counting.scale if stood_in else result.counts["squares"]
    assert outcome.loss == pytest.approx(4.0 * total / divisor, rel=1e-5)


def test_weights_that_are_lost_are_named() -> None:
    with World.enter(threads=1) as world:
        session = session_of(Dropped(), world, "precision=fp32")
        with torch.no_grad():
            session.model[3].bias.fill_(float("nan"))  # type: ignore[index, union-attr]
        outcome = watched(scene_of(session, [samples([FINE] * 6)], {"squares": 6.0}))
    assert outcome.weights == ("3.bias",)
    assert not outcome.finite


def test_an_error_is_told_where_nobody_waits_for_this_rank_and_raised_where_somebody_does() -> None:
    with World.enter(threads=1) as world:
        for overrides in ([], ["parallel.sync_batchnorm=true"]):
            recipe = Dropped()
            session = session_of(recipe, world, "precision=fp32", *overrides)
            recipe.raises = True
            scene = scene_of(session, [samples([NAN] * 6)], {"squares": 6.0})
            assert scene.together is bool(overrides)
            if overrides:
                with pytest.raises(ValueError, match="only now"):
                    watched(scene)
            else:
                assert watched(scene).error == "ValueError: only now"
