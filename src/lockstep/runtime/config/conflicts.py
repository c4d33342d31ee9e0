"""Combinations of fields that cannot be. One small function each; `CHECKS` is the list of them."""

import re
from collections.abc import Callable

from lockstep.runtime.config.problem import Problem, show
from lockstep.runtime.config.schema import Fields

FILE_RECIPE = re.compile(r".+\.py:[^\W\d]\w*")


def recipe_is_named(config: Fields) -> Problem | None:
    """A recipe in a file needs its class."""
    name = config.recipe
    if (".py" not in name and ":" not in name) or FILE_RECIPE.fullmatch(name):
        return None
    must = "the name of a built-in recipe, or path.py:Class"
    hint = f"recipe={name.partition(':')[0]}:MyRecipe, with the class's name" if ".py" in name else ""
    return Problem(f"recipe is {show(name)}", must, ("recipe",), next_step=hint)


def one_batch_size(config: Fields) -> Problem | None:
    """The global batch is either stated or derived."""
    batch = config.batch
    if batch.global_batch is None or batch.per_rank is None:
        return None
    return Problem(
        f"batch.global_batch is {batch.global_batch} and batch.per_rank is {batch.per_rank}",
        "only one of them is set; the other follows from it and from the number of ranks",
        ("batch.global_batch", "batch.per_rank"),
        next_step="batch.per_rank=null or batch.global_batch=null",
    )


def targets_or_samples(config: Fields) -> Problem | None:
    """A step is counted in targets or in samples, and so is a forward."""
    batch = config.batch
    of_samples = ("global_batch", "per_rank", "accumulation", "micro_batch")
    if batch.global_targets is not None:
        for name in of_samples:
            if getattr(batch, name) is not None:
                return Problem(
                    f"batch.global_targets is {batch.global_targets} and batch.{name} is {getattr(batch, name)}",
                    "a step is counted in targets or in samples; with targets, micro_targets says what a forward holds",
                    ("batch.global_targets", f"batch.{name}"),
                    next_step=f"batch.{name}=null, or batch.global_batch=N instead of batch.global_targets",
                )
    elif batch.micro_targets is not None:
        return Problem(
            f"batch.micro_targets is {batch.micro_targets} and batch.global_targets is null",
            "micro_targets goes with global_targets; with samples, micro_batch says what a forward holds",
            ("batch.micro_targets", "batch.global_targets"),
            next_step="batch.global_targets=N, or batch.micro_targets=null",
        )
    return None


def buckets_are_shuffled(config: Fields) -> Problem | None:
    """Samples of like size come together by changing their order."""
    if config.data.bucket is None or config.data.shuffle:
        return None
    return Problem(
        f"data.bucket is {config.data.bucket} and data.shuffle is false",
        "data.shuffle=false keeps the order of the data set, and a bucket changes it",
        ("data.bucket", "data.shuffle"),
        next_step="data.bucket=null or data.shuffle=true",
    )


def one_accumulation(config: Fields) -> Problem | None:
    """The number of micro-steps is either stated or derived."""
    batch = config.batch
    if batch.accumulation is None or batch.micro_batch is None:
        return None
    return Problem(
        f"batch.accumulation is {batch.accumulation} and batch.micro_batch is {batch.micro_batch}",
        "only one of them is set; accumulation follows from micro_batch",
        ("batch.accumulation", "batch.micro_batch"),
        next_step="batch.accumulation=null or batch.micro_batch=null",
    )


def micro_batch_divides_a_global_one(config: Fields) -> Problem | None:
    """A stated batch per rank and micro-step leaves nothing to split."""
    batch = config.batch
    if batch.micro_batch is None or batch.per_rank is None:
        return None
    return Problem(
        f"batch.micro_batch is {batch.micro_batch} and batch.per_rank is {batch.per_rank}",
        "micro_batch goes with global_batch only; per_rank already is the batch of one forward",
        ("batch.micro_batch", "batch.per_rank"),
        next_step="batch.micro_batch=null, or batch.global_batch=N instead of batch.per_rank",
    )


def micro_steps_have_samples(config: Fields) -> Problem | None:
    """No micro-step is empty on all ranks."""
    batch = config.batch
    if batch.accumulation is None or batch.global_batch is None or batch.accumulation <= batch.global_batch:
        return None
    return Problem(
        f"batch.accumulation is {batch.accumulation} and batch.global_batch is {batch.global_batch}",
        "accumulation is at most the global batch, so that each micro-step has a sample",
        ("batch.accumulation", "batch.global_batch"),
    )


def scaling_has_reference(config: Fields) -> Problem | None:
    """A ratio of batches needs the batch to compare with."""
    if config.optim.lr_scaling == "none" or config.batch.reference is not None:
        return None
    return Problem(
        f"optim.lr_scaling is {show(config.optim.lr_scaling)} and batch.reference is null",
        "batch.reference says for which global batch optim.lr was chosen",
        ("optim.lr_scaling", "batch.reference"),
        next_step="batch.reference=N, or optim.lr_scaling=none",
    )


def nesterov_has_momentum(config: Fields) -> Problem | None:
    """Nesterov's step is a form of momentum, which only sgd has here."""
    optim = config.optim
    if not optim.nesterov or (optim.name == "sgd" and optim.momentum > 0):
        return None
    if optim.name != "sgd":
        seen, paths = f"optim.nesterov is true and optim.name is {show(optim.name)}", ("optim.nesterov", "optim.name")
    else:
        seen, paths = "optim.nesterov is true and optim.momentum is 0", ("optim.nesterov", "optim.momentum")
    return Problem(seen, "nesterov needs optim.name sgd and optim.momentum above 0", paths)


def warmup_fits(config: Fields) -> Problem | None:
    """The warm-up is a part of the schedule."""
    schedule = config.schedule
    if schedule.total_steps is None or schedule.warmup_steps <= schedule.total_steps:
        return None
    return Problem(
        f"schedule.warmup_steps is {schedule.warmup_steps} and schedule.total_steps is {schedule.total_steps}",
        "the warm-up is a part of the total, so it is not longer",
        ("schedule.warmup_steps", "schedule.total_steps"),
        next_step="fewer warmup_steps, or schedule.total_steps=null for the length of the run",
    )


def one_way_for_unused(config: Fields) -> Problem | None:
    """A static graph knows its unused parameters after one step; a search in each step contradicts it."""
    if not config.parallel.static_graph or config.parallel.find_unused != "on":
        return None
    return Problem(
        'parallel.static_graph is true and parallel.find_unused is "on"',
        "a static graph handles unused parameters by itself, without a search in each step",
        ("parallel.static_graph", "parallel.find_unused"),
        next_step="parallel.find_unused=auto, or parallel.static_graph=false",
    )


def patience_has_metric(config: Fields) -> Problem | None:
    """Waiting for something better needs a measure of better."""
    if config.stop.patience is None or config.best.metric is not None:
        return None
    return Problem(
        f"stop.patience is {config.stop.patience} and best.metric is null",
        "best.metric names the metric that has to get better",
        ("stop.patience", "best.metric"),
        next_step="best.metric=val/NAME, or stop.patience=null",
    )


def best_is_evaluated(config: Fields) -> Problem | None:
    """A metric gets its value from evaluations."""
    evaluate = config.evaluate
    if config.best.metric is None or evaluate.every_epochs is not None or evaluate.every_steps is not None:
        return None
    return Problem(
        f"best.metric is {show(config.best.metric)} and both evaluate.every_epochs and evaluate.every_steps are null",
        "there are evaluations, which give the metric its value",
        ("best.metric", "evaluate.every_epochs", "evaluate.every_steps"),
        next_step="evaluate.every_epochs=1, or best.metric=null",
    )


CHECKS: tuple[Callable[[Fields], Problem | None], ...] = (
    recipe_is_named,
    one_batch_size,
    targets_or_samples,
    buckets_are_shuffled,
    one_accumulation,
    micro_batch_divides_a_global_one,
    micro_steps_have_samples,
    scaling_has_reference,
    nesterov_has_momentum,
    warmup_fits,
    one_way_for_unused,
    patience_has_metric,
    best_is_evaluated,
)


def conflicts(config: Fields) -> list[Problem]:
    """All impossible combinations of a config whose fields are right by themselves."""
    return [problem for check in CHECKS if (problem := check(config)) is not None]
