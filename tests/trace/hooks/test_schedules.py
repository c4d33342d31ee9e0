"""What is told of schedulers and of GradScaler."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from lockstep.trace.events import Scaler, Schedule
from lockstep.trace.hooks.schedules import declared_length
from tests.trace.hooks.recorded import recorded


def _optimizer() -> torch.optim.SGD:
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)


def _two_schedulers() -> None:
    optimizer = _optimizer()
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    other = _optimizer()
    plateau = lr_scheduler.ReduceLROnPlateau(other, patience=0)
    for value in (1.0, torch.tensor(2.0)):
        optimizer.step()
        cosine.step()
        plateau.step(value)


def test_steps_and_metrics(tmp_path: Path) -> None:
    events = [one for one in recorded(tmp_path, "schedules", _two_schedulers) if isinstance(one, Schedule)]
    cosine, plateau = events[::2], events[1::2]
    assert [(one.schedule, one.kind, one.total, one.count) for one in cosine] == [
        (0, "CosineAnnealingLR", 2, 1),
        (0, "CosineAnnealingLR", 2, 2),
    ]
    assert [one.lr[0] for one in cosine] == pytest.approx([0.5, 0.0])
    assert [(one.metric, one.lr) for one in plateau] == [(1.0, (1.0,)), (2.0, (0.1,))]
    assert all(one.at.startswith(f"{__file__}:") for one in events)


class _Own(lr_scheduler.LRScheduler):
    """Of a user's making, with a step of its own."""

    def get_lr(self) -> list[float]:
        return [0.25 for _ in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)


def _nested() -> None:
    optimizer = _optimizer()
    parts = [lr_scheduler.LinearLR(optimizer, total_iters=2), lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)]
    both = lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])
    own = _Own(_optimizer())
    optimizer.step()
    own.optimizer.step()
    both.step()
    own.step()
    own.step()


def test_schedulers_inside_schedulers_are_told_once(tmp_path: Path) -> None:
    events = [one for one in recorded(tmp_path, "schedules", _nested) if isinstance(one, Schedule)]
    assert [(one.kind, one.total, one.count) for one in events] == [
        ("SequentialLR", 10, 1),
        ("_Own", None, 1),
        ("_Own", None, 2),
    ]


def _falls(step: int, *, num_training_steps: int) -> float:
    return 1 - step / num_training_steps


def test_declared_lengths() -> None:
    optimizer = _optimizer()
    total_steps, other = 30, 50
    assert declared_length(lr_scheduler.OneCycleLR(optimizer, 1.0, epochs=2, steps_per_epoch=5)) == 10
    assert declared_length(lr_scheduler.PolynomialLR(optimizer, total_iters=7)) == 7
    assert declared_length(lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=7)) == 7
    assert declared_length(lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=7)) is None  # a warm-up
    assert declared_length(lr_scheduler.StepLR(optimizer, 7)) is None
    assert declared_length(lr_scheduler.LambdaLR(optimizer, partial(_falls, num_training_steps=40))) == 40
    assert declared_length(lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / total_steps)) == 30
    assert declared_length(lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / other)) is None
    assert declared_length(object()) is None


def _scale() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for factor in (1.0, float("inf")):
        optimizer.zero_grad()
        scaler.scale(weight.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.amp.GradScaler("cpu", enabled=False).update()


def test_scales(tmp_path: Path) -> None:
    events = [one for one in recorded(tmp_path, "schedules", _scale) if isinstance(one, Scaler)]
    assert [(one.scale, one.skipped) for one in events] == [(8.0, False), (4.0, True)]
