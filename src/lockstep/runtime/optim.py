"""The optimizer and its schedule, built from the config out of torch's own."""

import math
from typing import Any

import torch
from torch import nn
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
    common["fused" if config.fused and _all_floating(params) else "foreach"] = True
    if config.name == "sgd":
        return torch.optim.SGD(params, momentum=config.momentum, nesterov=config.nesterov, **common)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(params, betas=tuple(config.betas), **common)  # type: ignore[arg-type]


def _all_floating(params: list[nn.Parameter]) -> bool:
    return all(p.is_floating_point() for p in params)


def build_schedule(
    optimizer: torch.optim.Optimizer, config: ScheduleConfig, total_steps: int, warmup_factor: float
) -> Schedule:
    """The schedule over optimizer steps, counted in steps of the whole run and not of a rank.

    Args:
        optimizer: whose learning rate is scheduled.
        config: the section `schedule`.
        total_steps: optimizer steps from start to end of the schedule; after them the rate stays as it is.
        warmup_factor: >= 1 lengthens the warm-up where the learning rate was scaled up.
    """
    warmup = round(config.warmup_steps * max(1.0, warmup_factor))
    decay_steps = max(1, total_steps - warmup)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return decay(config, step - warmup, decay_steps)

    return schedules.LambdaLR(optimizer, factor)


def decay(config: ScheduleConfig, step: int, steps: int) -> float:
    """The learning rate as a factor of the peak, `step` steps after the warm-up.

    A function of the step alone: torch's own cosine rises again after its end, its polynomial ends at zero only.
    """
    done, low = min(step / steps, 1.0), config.final_factor
    match config.name:
        case "cosine":
            return low + (1 - low) * (1 + math.cos(math.pi * done)) / 2
        case "linear":
            return low + (1 - low) * (1 - done)
        case "poly":
            return float(low + (1 - low) * (1 - done) ** config.power)
        case "step":
            return float(config.gamma ** (step // config.step_size))
        case _:
            return 1.0
