"""What explains a difference: likely causes, each tried by a take without just that cause."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.core.proof import Cause, Difference
from lockstep.proof import mirror, shard, values
from lockstep.proof.align import rates_of, views
from lockstep.proof.mirror import Mirrored
from lockstep.proof.question import Stage
from lockstep.proof.shard import Sharded
from lockstep.proof.takes import Take
from lockstep.trace.events import Model, Optimizer

MOST_TRIALS = 4


@dataclass(frozen=True)
class Hypothesis:
    """A cause, and a take that lacks it. trial: whether the lemma holds then; None where it cannot be tried."""

    cause: Cause
    trial: Callable[[], bool] | None = None


def explained(hypotheses: list[Hypothesis]) -> tuple[Cause, ...]:
    """The causes, those that a trial confirms first; those that a trial refutes are left out."""
    causes = []
    for count, one in enumerate(hypotheses):
        held = one.trial() if one.trial is not None and count < MOST_TRIALS else one.cause.confirmed
        if held is not False:
            causes.append(Cause(one.cause.text, one.cause.next_step, one.cause.code, held))
        if held:
            break
    return tuple(sorted(causes, key=lambda cause: cause.confirmed is not True))


def _kinds(differences: tuple[Difference, ...]) -> set[str]:
    return {one.what for one in differences}


# ---- mirror ----


def of_mirror(stage: Stage, take: Take, result: Mirrored, alone: bool = False) -> tuple[Cause, ...]:
    """What may explain a broken mirror, the most upstream first. alone: it broke with one rank already."""
    stage = stage.with_one_rank() if alone else stage
    kinds = _kinds(result.differences)
    found: list[Hypothesis] = []
    if "batch" in kinds:
        found.append(_other_samples(stage))
    if "start" in kinds:
        found.append(_other_start(stage))
    found += _stale(stage, take)
    if "lr" in kinds:
        found.append(_other_rates(stage))
    if "output" in kinds:
        found.append(_dropout(stage))
    if result.factor is not None:
        found.append(_scaled(stage, result.factor))
    if kinds == {"step"}:
        text = "the two make another number of steps: epochs or a limit of steps follow the number of ranks"
        next_step = "keep the number of epochs: in each of them a rank has 1/N of the samples already"
        found.append(Hypothesis(Cause(text, next_step)))
    if kinds == {"parameter"}:
        text = "the gradients and rates are equal, and the parameters after the step are not: the optimizer's settings"
        found.append(Hypothesis(Cause(text, "compare the arguments of the two optimizers (momentum, weight decay)")))
    return explained(found)


def _holds(stage: Stage, name: str, reference: Take | None = None, **changes: Any) -> bool:
    take = stage.mirror(name, **changes)
    return mirror.compare(reference or stage.reference(), take).exact


def _other_samples(stage: Stage) -> Hypothesis:
    text = "the program makes other samples of the same indices: augmentation, transforms or collate differ"
    next_step = "use the same transforms; noise may differ by rank only where the original has noise"
    return Hypothesis(Cause(text, next_step, "LS409"), lambda: _holds_with_content(stage))


def _holds_with_content(stage: Stage) -> bool:
    return mirror.compare(stage.content_reference(), stage.content_mirror()).exact


def _other_start(stage: Stage) -> Hypothesis:
    text = "the two start from different weights"
    next_step = "seed both alike before the model is built, or load the same weights"
    folder = stage.reference().folder
    return Hypothesis(
        Cause(text, next_step, "LS413"), lambda: _holds(stage, "mirror from the same weights", start=folder)
    )


def _other_rates(stage: Stage) -> Hypothesis:
    rates = rates_of(stage.reference())
    text = "the learning rate is another one"
    next_step = "keep the rate as long as the global batch is the same; declare a scaling with --accept LS412"
    return Hypothesis(Cause(text, next_step, "LS412"), lambda: _holds(stage, "mirror at the same rate", lr=rates))


def _dropout(stage: Stage) -> Hypothesis:
    text = "the program draws other random numbers in its layers, or has dropout where the original has none"
    next_step = "compare the dropout layers and rates of the two models"

    def trial() -> bool:
        reference = stage.reference_without_dropout()
        return _holds(stage, "mirror without dropout", reference, no_dropout=True)

    return Hypothesis(Cause(text, next_step, "LS414"), trial)


def _scaled(stage: Stage, ratio: float) -> Hypothesis:
    return Hypothesis(
        _factor_cause(stage, ratio),
        lambda: _holds(stage, f"mirror with the loss times {1 / ratio:.6g}", factor=1 / ratio),
    )


def _factor_cause(stage: Stage, ratio: float) -> Cause:
    ranks, plan = stage.num_ranks, stage.layout()
    text = f"every gradient is {ratio:.9g} times the reference's"
    if plan.micro > 1 and abs(ratio - plan.micro) < 1e-6:
        text += f" ({plan.micro} micro-batches): the accumulated loss is not divided by the number of micro-batches"
        return Cause(text, "divide the loss by the number of micro-batches", "LS411")
    if abs(ratio * ranks - 1) < 1e-6:
        text += f" (1 / {ranks} ranks): a loss that is a sum over samples is averaged over the ranks by DDP"
        return Cause(text, "multiply the loss by the number of ranks, or divide sums by the global count", "LS411")
    if abs(ratio - ranks) < 1e-6:
        text += f" ({ranks} ranks): gradients are summed over the ranks and not averaged"
        return Cause(text, "divide by the number of ranks once", "LS411")
    return Cause(text, "look for a factor on the loss or on the gradients", "LS411")


def _stale(stage: Stage, take: Take) -> list[Hypothesis]:
    reference, rank = stage.reference().trace.ranks[0], take.trace.ranks[0]
    mine = list(rank.of(Optimizer))
    if not mine:
        return []
    lost = [key for event in mine for key, name in zip(event.keys, event.names, strict=True) if not name]
    step = next(iter(views(rank)), None)
    wanted = next(iter(views(reference)), None)
    idle = step is not None and wanted is not None and len(step.step.missing) > len(wanted.step.missing)
    if not lost and not idle:
        return []
    text = "the optimizer holds parameters that are not (any more) those of the model that is trained"
    return [Hypothesis(Cause(text, "build the optimizer from the parameters of the model that is used", "LS109"))]


# ---- shard ----


def of_shard(stage: Stage, take: Take, result: Sharded) -> tuple[Cause, ...]:
    """What may explain a broken shard, the most upstream first."""
    kinds = _kinds(result.differences)
    found: list[Hypothesis] = []
    if "start" in kinds:
        folder = stage.double_reference().folder
        text, next_step = "the two start from different weights", "seed both alike before the model is built"
        found.append(
            Hypothesis(
                Cause(text, next_step, "LS413"), lambda: _agrees(stage, "shard from the same weights", start=folder)
            )
        )
    if "lr" in kinds:
        rates = rates_of(stage.double_reference())
        text, next_step = "the learning rate is another one", "keep it as long as the global batch is the same"
        found.append(
            Hypothesis(Cause(text, next_step, "LS412"), lambda: _agrees(stage, "shard at the same rate", lr=rates))
        )
    if stage.norms == "own" and any(event.batch_norms for event in take.trace.ranks[0].of(Model)):
        found.append(_local_norms(stage))
    if result.factor is not None:
        ratio = result.factor
        found.append(
            Hypothesis(
                _factor_cause(stage, ratio),
                lambda: _agrees(stage, f"shard with the loss times {1 / ratio:.6g}", factor=1 / ratio),
            )
        )
    if result.missed:
        found.append(_not_reduced(stage, result))
    if "batch" in kinds:
        text = "the program makes other samples of the same indices: augmentation, transforms or collate differ"
        next_step = "use the same transforms; noise may differ by rank only where the original has noise"
        found.append(Hypothesis(Cause(text, next_step, "LS409")))
    found += _stale(stage, take)
    if not result.missed and result.factor is None:
        found += _denominators(stage)
    return explained(found)


def _agrees(stage: Stage, name: str, **changes: Any) -> bool:
    return shard.compare(stage.double_reference(), stage.shard(name, **changes)).passed


def _local_norms(stage: Stage) -> Hypothesis:
    text = "BatchNorm sees only the samples of its own rank"
    next_step = "convert with torch.nn.SyncBatchNorm.convert_sync_batchnorm, or declare it with --accept LS116"
    return Hypothesis(
        Cause(text, next_step, "LS116"), lambda: _agrees(stage, "shard with synchronised BatchNorm", norms="synced")
    )


def _not_reduced(stage: Stage, result: Sharded) -> Hypothesis:
    few = ", ".join(result.missed[:3]) + (f" and {len(result.missed) - 3} more" if len(result.missed) > 3 else "")
    text = f"the gradient of {few} is not reduced over the ranks"
    if result.exact:
        text += f" ({len(result.exact)} other parameters are right)"
    next_step = "call the model through its DDP wrapper, or reduce every parameter's gradient before the step"
    return Hypothesis(
        Cause(text, next_step, "LS102"), lambda: _agrees(stage, "shard with gradients averaged", averaged=True)
    )


def _denominators(stage: Stage) -> list[Hypothesis]:
    """Whether the true gradient is a mean of the ranks' local ones with other weights than 1/N: unequal counts."""
    weights = local_weights(stage)
    if weights is None or all(abs(weight - 1 / stage.num_ranks) < 1e-6 for weight in weights):
        return []
    shares = ", ".join(f"rank {rank} {weight:.4g}" for rank, weight in enumerate(weights))
    text = (
        f"ranks average over unequal counts: the true gradient weighs the ranks' own gradients by {shares}, "
        f"and they are averaged with {1 / stage.num_ranks:.4g} each"
    )
    next_step = "reduce the count over all ranks, and divide the sum of the losses by it (times the number of ranks)"
    return [Hypothesis(Cause(text, next_step, "LS410", True))]


def local_weights(stage: Stage) -> tuple[float, ...] | None:
    """Weights w for which sum(w_r * local gradient of rank r) is the true gradient; None where there are none."""
    if stage.question.settings.spawns:  # such a program cannot be run as one rank of several
        return None
    reference = stage.double_reference()
    slices = [stage.slice_alone(rank) for rank in range(stage.num_ranks)]
    first = next(iter(views(reference.trace.ranks[0])), None)
    steps = [next(iter(views(one.trace.ranks[0])), None) for one in slices if one.trace.ranks]
    if first is None or len(steps) < len(slices) or any(step is None for step in steps):
        return None
    truth = values.gradients(reference, 0, first)
    local = [values.gradients(one, 0, step) for one, step in zip(slices, steps, strict=True) if step is not None]
    if any(one.arrays.keys() != truth.arrays.keys() for one in local):
        return None
    wanted, flat = _flat(truth), [_flat(one) for one in local]
    if any(one.shape != wanted.shape or not np.isfinite(one).all() for one in (wanted, *flat)):
        return None
    columns = np.stack(flat, axis=1)  # (all elements, num_ranks)
    weights, *_ = np.linalg.lstsq(columns, wanted, rcond=None)
    rest = float(np.linalg.norm(columns @ weights - wanted)) / (float(np.linalg.norm(wanted)) or 1.0)
    return tuple(float(one) for one in weights) if rest <= shard.BUG else None


def _flat(one: values.Values) -> values.Array:
    return np.concatenate([one.arrays[key].reshape(-1) for key in sorted(one.arrays)])
