"""Whether some modules in float32 make a step finite: tried, not guessed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from lockstep.runtime.state.tensors import clean_name
from lockstep.runtime.triage.finding import Outcome
from lockstep.runtime.triage.rerun import Scene, watched
from lockstep.runtime.world import World

ROUNDS = 4


@dataclass(frozen=True)
class Remedy:
    """What was tried; the same on every rank.

    Attributes:
        modules: those that were run in float32.
        helps: whether the step was finite then.
        scale_only: whether it is finite as it is, once the loss scale is 1.
    """

    modules: tuple[str, ...]
    helps: bool
    scale_only: bool = False


def try_fp32(scene: Scene, outcomes: Sequence[Outcome], world: World) -> Remedy:
    """Run the step again with the modules at fault in float32, and with those that are found then. All ranks together.

    Args:
        scene: the step.
        outcomes: what every rank has found.
        world: the ranks.
    """
    if not scene.precision.low:
        return Remedy((), False)
    if scene.scale > 1:
        # A scale that is still too large is no fault of a module; with 1, what is at fault is so by itself.
        scene = replace(scene, scale=1.0)
        outcomes = everywhere(watched(scene), world)
        if _finite(outcomes):
            return Remedy((), False, scale_only=True)
    names: list[str] = []
    for _ in range(ROUNDS):
        suspects = [name for one in outcomes for name in _suspects(scene.replica.model, one, names)]
        new = [name for name in dict.fromkeys(suspects) if name not in names]
        if not new:
            break
        names += new
        outcomes = everywhere(watched(scene, names), world)
        if _finite(outcomes):
            return Remedy(tuple(names), True)
    return Remedy(tuple(names), False)


def _finite(outcomes: Sequence[Outcome]) -> bool:
    return all(one.finite and math.isfinite(one.loss) and not one.error for one in outcomes)


def everywhere(outcome: Outcome, world: World) -> list[Outcome]:
    """What all ranks found. Where a loss is not finite on one, gradients that suffer from it on others are left out."""
    ranks = world.gather(outcome)
    if all(math.isfinite(one.loss) for one in ranks):
        return ranks
    return [replace(one, finding=None) if one.finding and one.finding.direction == "backward" else one for one in ranks]


def _suspects(model: nn.Module, outcome: Outcome, tried: Sequence[str]) -> list[str]:
    """Modules to try next: the one at fault, but for code between modules rather those whose output it takes."""
    found = outcome.finding
    if found is None:
        return []
    own = [found.module] if found.module else []
    modules = {clean_name(name): module for name, module in model.named_modules()}
    leaf = bool(own) and not any(True for _ in modules[own[0]].children())
    groups = [own] if leaf else [list(found.feeds), own]
    return next((group for group in groups if any(name not in tried for name in group)), [])
