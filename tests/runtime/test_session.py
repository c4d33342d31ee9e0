"""Every part of a rank is built from the config, the same weights on every rank, and the run's length is known."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.core.errors import LockstepError, UserError
from lockstep.runtime import session as module
from lockstep.runtime.data.broken import Broken
from lockstep.runtime.session import Session, _precision, _typed, build_session
from lockstep.runtime.state.position import Position
from lockstep.runtime.state.tensors import tensors_digest, weights_of
from lockstep.runtime.world import World
from tests.bad_recipes import Unreadable
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment, config_of


class RankDependent(Segment):
    """A user's mistake that the runtime makes up for: weights drawn from the rank's own randomness."""

    def model(self) -> nn.Module:
        import os

        torch.manual_seed(100 + int(os.environ["RANK"]))
        return super().model()


def facts(session: Session) -> dict[str, Any]:
    params = dict(session.model.named_parameters())
    return {
        "weights": tensors_digest(weights_of(session.model)[0]),
        "position": session.position,
        "total": session.total_steps,
        "per_epoch": session.steps_per_epoch,
        "val": session.val is not None,
        "dtype": next(iter(params.values())).dtype,
        "strides": [p.stride() for p in params.values() if p.dim() == 4],
        "norms": [type(m).__name__ for m in session.model.modules() if "Norm" in type(m).__name__],
        "training": session.model.training,
        "grads": [name for name, p in params.items() if p.grad is not None],
        "batch": None if session.train.length is None else tuple(session.read([(0, 0), (0, 1)])["image"].shape),
    }


def sessions(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with World.enter(threads=1) as world:

        def build(name: str, recipe: Segment, *overrides: str) -> None:
            config = config_of("batch.global_batch=8", "stop.epochs=3", *overrides)
            try:
                session = build_session(recipe, config, world, None)
            except LockstepError as error:
                found[name] = {"error": str(error)}
                return
            found[name] = facts(session)
            session.replica.close()

        build("plain", Segment(batchnorm=True))
        build("again", Segment(batchnorm=True))
        build("seed", Segment(batchnorm=True), "seed=1")
        build("by rank", RankDependent())
        build("double", Segment(val=5), "precision=fp64", "memory.channels_last=false")
        build("synchronised", Segment(batchnorm=True), "parallel.sync_batchnorm=true")
        build("limited", Segment(), "stop.max_steps=4")
        build("stream", Segment(stream=True), "schedule.name=constant")
        build("endless schedule", Segment(stream=True))
        build("limited stream", Segment(stream=True), "stop.max_steps=4")
        build("given weights", Segment(batchnorm=True), f"init_from={folder / 'weights.pt'}")
        build("other weights", Segment(branches=True), f"init_from={folder / 'weights.pt'}")
        broken = build_session(Unreadable(), config_of("batch.global_batch=8"), world, None)
        value = broken.read([(0, 13)])
        found["unreadable"] = value.message if isinstance(value, Broken) else None
        broken.replica.close()
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Mapping[str, Any]]:
    folder = tmp_path_factory.mktemp("sessions")
    torch.manual_seed(7)
    torch.save(Segment(batchnorm=True).model().state_dict(), folder / "weights.pt")
    return run_ranks(sessions, 2, folder)


def test_every_rank_has_the_same(built: list[Mapping[str, Any]]) -> None:
    assert built[0] == built[1]


def test_weights_follow_from_the_seed_alone(built: list[Mapping[str, Any]]) -> None:
    digests = {name: built[0][name]["weights"] for name in ("plain", "again", "seed", "synchronised")}
    assert digests["plain"] == digests["again"] == digests["synchronised"]
    assert digests["seed"] != digests["plain"]


def test_a_new_session_stands_at_the_beginning_and_leaves_no_trace_of_its_rehearsal(
    built: list[Mapping[str, Any]],
) -> None:
    plain = built[0]["plain"]
    assert plain["position"] == Position()
    assert plain["training"] and plain["grads"] == []
    assert plain["batch"] == (2, 3, 8, 8)


def test_the_length_of_the_run(built: list[Mapping[str, Any]]) -> None:
    lengths = {
        name: (built[0][name]["per_epoch"], built[0][name]["total"]) for name in built[0] if "total" in built[0][name]
    }
    assert lengths["plain"] == (7, 21)
    assert lengths["limited"] == (7, 4)
    assert lengths["stream"] == (None, None)
    assert lengths["limited stream"] == (None, 4)
    assert "set schedule.total_steps, or schedule.name=constant" in built[0]["endless schedule"]["error"]


def test_types_and_layouts_are_as_asked(built: list[Mapping[str, Any]]) -> None:
    plain, double = built[0]["plain"], built[0]["double"]
    assert (plain["dtype"], double["dtype"]) == (torch.float32, torch.float64)
    assert plain["strides"] == [(27, 1, 9, 3), (6, 1, 6, 6)]
    assert double["strides"] == [(27, 9, 3, 1), (6, 1, 1, 1)]
    assert (plain["val"], double["val"]) == (False, True)
    assert plain["norms"] == ["BatchNorm2d"]
    assert built[0]["synchronised"]["norms"] != ["BatchNorm2d"]


def test_weights_can_be_given(built: list[Mapping[str, Any]]) -> None:
    torch.manual_seed(7)
    expected = tensors_digest(weights_of(Segment(batchnorm=True).model())[0])
    assert built[0]["given weights"]["weights"] == expected
    assert "another architecture" in built[0]["other weights"]["error"]


def test_a_sample_that_cannot_be_read_is_a_value(built: list[Mapping[str, Any]]) -> None:
    assert "reading train sample 13 raised ValueError" in built[0]["unreadable"]


def test_complex_numbers_are_kept_or_refused_and_never_cut_down() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("phase", torch.ones(2, dtype=torch.complex64))
    model.register_buffer("places", torch.ones(2, dtype=torch.int64))
    assert _typed(model, None).phase.dtype is torch.complex64
    with pytest.raises(UserError, match=r"(?s)phase holds complex numbers.*precision=fp32"):
        _typed(model, torch.float64)
    del model.phase
    assert _typed(model, torch.float64).weight.dtype is torch.float64
    assert model.places.dtype is torch.int64


@pytest.mark.parametrize(
    ("device", "strategy", "offload", "scales", "refused"),
    [
        ("cuda", "fsdp", True, True, True),
        ("cuda", "fsdp", True, False, False),
        ("cuda", "fsdp", False, True, False),
        ("cuda", "ddp", True, True, False),
        ("cpu", "fsdp", True, True, False),
    ],
)
def test_a_loss_scale_does_not_go_with_gradients_in_host_memory(
    monkeypatch: pytest.MonkeyPatch, device: str, strategy: str, offload: bool, scales: bool, refused: bool
) -> None:
    made = SimpleNamespace(scaler=SimpleNamespace(is_enabled=lambda: scales))
    monkeypatch.setattr(module.Precision, "of", lambda *_: made)
    config = config_of(f"parallel.strategy={strategy}", f"parallel.cpu_offload={str(offload).lower()}")
    world: Any = SimpleNamespace(device=torch.device(device))
    if refused:
        with pytest.raises(UserError, match=r"(?s)precision fp16 with parallel.cpu_offload=true.*bf16"):
            _precision(config, world)
    else:
        assert _precision(config, world) is made  # type: ignore[comparison-overlap]
