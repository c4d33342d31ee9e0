"""The optimizer and its schedule, built from the config out of torch's own."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import lr_scheduler as schedules

from lockstep.core.errors import UserError, explain
from lockstep.runtime.config import OptimConfig, ScheduleConfig

Schedule = schedules.LRScheduler


def build_optimizer(model: nn.Module, config: OptimConfig, lr: float) -> torch.optim.Optimizer:
    """The optimizer over the trainable parameters.

    Args:
        model: the model, on its device and in its final type.
        config: the section `optim`.
        lr: the learning rate after scaling.
    """
    params = [p for p in model.parameters() if p.requires_grad]
    if not params:
        seen = f"{type(model).__name__} has no trainable parameter"
        raise UserError(explain(seen, "at least one with requires_grad=True", "recipe.model()"))
    common: dict[str, Any] = {"lr": lr, "weight_decay": config.weight_decay}
    # torch has no fused kernel of sgd for what is split among ranks.
    split_sgd = config.name == "sgd" and any(isinstance(p, DTensor) for p in params)
    if config.fused and _all_floating(params) and not split_sgd:
        common["fused"] = True
    if config.name == "sgd":
        return torch.optim.SGD(params, momentum=config.momentum, nesterov=config.nesterov, **common)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(params, betas=tuple(config.betas), **common)  # type: ignore[arg-type]


def _all_floating(params: list[nn.Parameter]) -> bool:
    return all(p.is_floating_point() for p in params)


def build_schedule(
    optimizer: torch.optim.Optimizer, config: ScheduleConfig, total_steps: int, warmup_factor: float
) -> schedules.LambdaLR:
    """The schedule over optimizer steps, counted in steps of the whole run and not of a rank.

    The rate of a step is a function of the step alone, so a resumed run stands where the unbroken one did, and one with
    another schedule in its config stands where that would be by now.

    Args:
        optimizer: whose learning rate is scheduled.
        config: the section `schedule`.
        total_steps: optimizer steps from start to end of the schedule; it stays at its end afterwards.
        warmup_factor: >= 1 lengthens the warm-up where the learning rate was scaled up.
    """
    warmup = round(config.warmup_steps * max(1.0, warmup_factor))
    return schedules.LambdaLR(optimizer, partial(factor_at, config, warmup, max(1, total_steps - warmup)))


def factor_at(config: ScheduleConfig, warmup: int, steps: int, step: int) -> float:
    """What the learning rate is multiplied by in an optimizer step.

    Args:
        config: the section `schedule`.
        warmup: steps of the linear rise; the first of them has the rate 1 / (warmup + 1).
        steps: steps after it.
        step: 0, 1, 2 ...
    """
    if step < warmup:
        start = 1 / (warmup + 1)
        return start + (1 - start) * step / warmup
    done = min(step - warmup, steps)
    part, end = done / steps, config.final_factor
    match config.name:
        case "cosine":
            return end + (1 - end) * (1 + math.cos(math.pi * part)) / 2
        case "linear":
            return 1 + (end - 1) * part
        case "poly":
            return float(end + (1 - end) * (1 - part) ** config.power)
        case "step":
            return float(config.gamma ** ((step - warmup) // config.step_size))
        case _:
            return 1.0


def stand_at(schedule: Schedule, saved: Mapping[str, Any]) -> None:
    """Let a schedule stand where a saved one did, with the rates that its own config gives there."""
    rates = schedule.base_lrs
    schedule.load_state_dict(dict(saved))
    if isinstance(schedule, schedules.LambdaLR):
        schedule.base_lrs = rates
        step = schedule.last_epoch
        schedule._last_lr = [rate * factor(step) for rate, factor in zip(rates, schedule.lr_lambdas, strict=True)]
    for group, rate in zip(schedule.optimizer.param_groups, schedule.get_last_lr(), strict=True):
        group["lr"] = rate
